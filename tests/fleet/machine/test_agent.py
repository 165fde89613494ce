"""The agent against the metadata services of both clouds, mostly under a virtual clock, without a BOINC client."""

import ast
import signal
import sys
from pathlib import Path

import pytest

from tests.fleet.machine.machine import AGENT, Machine, VirtualMachine
from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata, served

pytestmark = pytest.mark.server

NOWHERE = "http://127.0.0.1:9/"


def test_on_notice_work_stops_and_the_machine_is_left_running(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    """The agent must not end it: an hour that the cloud interrupts is free."""
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(10)
        assert "no more work is taken" not in machine.log
        metadata.notify()
        machine.run(60)
        assert "no more work is taken" in machine.log
        assert "all is reported" in machine.log
        assert machine.finish_now.exists()
        assert not machine.is_powered_off


def test_a_real_agent_follows_a_notice_and_ends_at_sigterm(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    if metadata.cloud == "aws":  # which is asked every 5 s
        metadata.notify()
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: len(metadata.asked) > 1, "it has looked")
        metadata.notify()
        machine.wait_for("no more work is taken")
        machine.wait_for("all is reported")
        if metadata.cloud == "gcp":
            assert any("wait_for_change=true" in line for line in metadata.asked), "30 s are too few to poll"
        assert machine.kill(signal.SIGTERM) == 0
        assert "asked to end" in machine.log
        assert not machine.is_powered_off


def test_a_drained_machine_with_nothing_to_upload_is_powered_off(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    metadata.mark(VirtualMachine.BEGAN_S)
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(4)
        assert not machine.is_powered_off, "a scheduler's reply may be under way"
        machine.run(6)
        assert machine.is_powered_off


def test_a_drained_machine_with_a_notice_is_left_to_the_cloud(tmp_path: Path) -> None:
    with served(GcpMetadata()) as metadata:
        metadata.mark(VirtualMachine.BEGAN_S)
        with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
            machine.run(2)
            assert "is over since" in machine.log
            metadata.notify()
            machine.run(60)
            assert "notice: preempted" in machine.log
            assert not machine.is_powered_off


def test_the_agent_survives_metadata_that_are_out_of_order(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    metadata.broken = True
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(20)
        assert machine.log.count("metadata: ") == 1, "what lasts is said once"
        metadata.notify()
        metadata.broken = False
        machine.run(6)
        assert "no more work is taken" in machine.log
        assert "metadata: all right again" in machine.log


def test_an_unreadable_mark_hides_no_notice(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    metadata.failing = "vcdl-until"
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(6)
        assert "metadata: " in machine.log
        metadata.notify()
        machine.run(6)
        assert "no more work is taken" in machine.log


def test_nothing_is_taken_back_before_the_cloud_has_answered(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata:
        metadata.broken = True
        with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
            machine.finish_now.touch()
            machine.run(60)
            assert machine.finish_now.exists()
            metadata.broken = False
            machine.run(10)
            assert not machine.finish_now.exists(), "the machine may stay"


def test_a_machine_that_the_cloud_recommends_to_leave_drains_and_is_powered_off(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(20)
        assert "no more work is taken" not in machine.log
        metadata.set("/latest/meta-data/events/recommendations/rebalance", '{"noticeTime": "2026-11-21T12:00:00Z"}')
        machine.run(8)
        assert "the cloud recommends to leave" in machine.log
        assert not machine.finish_now.exists(), "subtasks have their time"
        machine.run(12)
        assert machine.is_powered_off


def test_an_expired_token_is_replaced(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(6)
        assert any("vcdl-until" in line for line in metadata.asked)
        metadata.tokens.clear()
        metadata.notify()
        machine.run(6)
        assert "no more work is taken" in machine.log


def test_a_withdrawn_notice_lets_subtasks_continue(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    metadata.notify()
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(6)
        assert machine.finish_now.exists()
        metadata.withdraw()
        machine.run(10)
        assert not machine.finish_now.exists(), "the agent removes its own file"


def test_subtasks_of_a_drained_machine_are_told_to_finish_when_its_time_is_nearly_over(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    metadata.mark(VirtualMachine.BEGAN_S)
    with VirtualMachine(tmp_path, metadata, NOWHERE, drain_s=900, boinccmd=["false"]) as machine:
        machine.run(100)
        assert not machine.finish_now.exists(), "they have their time"
        machine.elapsed_s = 774.0
        machine.start()  # an agent that was killed and started again
        machine.run(4)
        assert not machine.finish_now.exists()
        machine.run(4)
        assert machine.finish_now.exists()


def test_a_machine_without_a_subtask_for_too_long_is_powered_off(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    """Whether the project is away, has no work, or was never reached."""
    with VirtualMachine(tmp_path, metadata, NOWHERE, idle_s=120) as machine:
        machine.run(110)
        assert not machine.is_powered_off
        machine.run(20)
        assert machine.is_powered_off
        assert "no subtask for" in machine.log


_TASK = """======== Tasks ========
1) -----------
   name: one
   project URL: http://example.org/
   state: downloaded
   scheduler state: scheduled
"""


def boinccmd_with_a_task(folder: Path) -> tuple[Path, Path]:
    """A boinccmd whose client trains one task, and the file into which it writes what it is asked."""
    program, log = folder / "boinccmd", folder / "asked"
    program.write_text(f'#!/bin/sh\necho "$*" >>{log}\n[ $1 = --get_tasks ] && cat <<EOF\n{_TASK}EOF\nexit 0\n')
    program.chmod(0o755)
    return program, log


def test_a_machine_with_a_running_subtask_is_not_idle(tmp_path: Path) -> None:
    program, _ = boinccmd_with_a_task(tmp_path)
    with served(AwsMetadata()) as metadata:
        machine = VirtualMachine(tmp_path / "m", metadata, NOWHERE, idle_s=60, boinccmd=[str(program)])
        with machine:
            machine.run(90)
            assert not machine.is_powered_off


def test_a_subtask_that_hangs_is_given_back_at_the_end_of_the_drain_time(tmp_path: Path) -> None:
    program, log = boinccmd_with_a_task(tmp_path)
    with served(AwsMetadata()) as metadata:
        metadata.mark(VirtualMachine.BEGAN_S)
        machine = VirtualMachine(tmp_path / "m", metadata, NOWHERE, drain_s=60, boinccmd=[str(program)])
        with machine:
            machine.run(55)
            assert "abort" not in log.read_text()
            machine.run(10)
            assert "--task http://example.org/ one abort" in log.read_text()


def test_idle_time_adds_up_over_killed_agents(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, VirtualMachine(tmp_path, metadata, NOWHERE, idle_s=200) as machine:
        for _ in range(3):
            machine.run(65)
            assert not machine.is_powered_off
            machine.start()
        machine.run(65)
        assert machine.is_powered_off, "idle for more than 200 s, all in all"


def test_a_machine_whose_lease_is_not_renewed_drains_and_is_powered_off(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    """The keeper is gone for good."""
    metadata.mark(VirtualMachine.BEGAN_S + 60)
    with VirtualMachine(tmp_path, metadata, NOWHERE) as machine:
        machine.run(55)
        metadata.mark(VirtualMachine.BEGAN_S + 120)  # the keeper's last pass
        machine.run(60)
        assert "no more work is taken" not in machine.log
        machine.run(20)
        assert "no more work is taken" in machine.log
        assert machine.is_powered_off


def test_a_machine_without_a_lease_has_its_own_from_its_first_boot(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, VirtualMachine(tmp_path, metadata, NOWHERE, lease_s=60) as machine:
        machine.run(40)
        machine.start()  # also over a restart
        machine.run(10)
        assert not machine.is_powered_off
        machine.run(30)
        assert machine.is_powered_off


def test_a_machine_drains_at_the_end_of_its_life_whatever_its_lease(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    metadata.mark(VirtualMachine.BEGAN_S + 86_400)
    with VirtualMachine(tmp_path, metadata, NOWHERE, max_life_s=60) as machine:
        machine.run(50)
        assert not machine.is_powered_off
        machine.run(30)
        assert machine.is_powered_off


def test_the_agent_needs_nothing_but_the_standard_library_of_python_3_9() -> None:
    paths = sorted(AGENT.rglob("*.py"))
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9)))]
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if node.level == 0}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    ours = {(node.module, node.level) for node in nodes if isinstance(node, ast.ImportFrom) if node.level}
    assert ours <= {(path.stem, 1) for path in paths if path.parent == AGENT}
