"""The agent as a real process, against the metadata services of both clouds; the BOINC client is not installed on these machines."""

import ast
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.fleet.machine.machine import AGENT, Machine
from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata, served

NOWHERE = "http://127.0.0.1:9/"
PROJECT_PAGE = '<html><link rel="boinc_scheduler" href="http://example.org/cgi"></html>'


@pytest.fixture(params=[AwsMetadata, GcpMetadata], ids=["aws", "gcp"])
def metadata(request: pytest.FixtureRequest) -> Iterator[AwsMetadata | GcpMetadata]:
    made: AwsMetadata | GcpMetadata = request.param()
    with served(made):
        yield made


@contextmanager
def web_page(text: str) -> Iterator[str]:
    """The URL of a page with that text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_notice_is_heard_and_the_machine_is_left_running(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: len(metadata.asked) > 2, "it has looked")
        metadata.notify()
        machine.wait_for("no more work is taken")
        machine.wait_for("all is reported")
        time.sleep(7)  # longer than a drained machine would stay
        assert not machine.is_powered_off, "an hour that the cloud interrupts is free, one that we end is not"
        if metadata.cloud == "gcp":
            assert any("wait_for_change=true" in line for line in metadata.asked), "30 s are too few to poll"


def test_a_drained_machine_with_nothing_to_upload_is_powered_off(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    metadata.mark(time.time())
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: machine.is_powered_off, "it is powered off")


def test_a_dry_run_only_says_that_it_would_power_off(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata:
        metadata.mark(time.time())
        with Machine(tmp_path, metadata, NOWHERE, "--dry-run") as machine:
            machine.wait_for("not really")
            assert not machine.is_powered_off


def test_a_drained_machine_with_a_notice_is_left_to_the_cloud(tmp_path: Path) -> None:
    with served(GcpMetadata()) as metadata:
        metadata.mark(time.time())
        with Machine(tmp_path, metadata, NOWHERE) as machine:
            machine.wait_for("drain: since")
            metadata.notify()
            machine.wait_for("notice: preempted")
            time.sleep(7)
            assert not machine.is_powered_off


def test_metadata_that_is_out_of_order_is_outlived(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    metadata.broken = True
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_for("metadata: ")
        metadata.notify()
        metadata.broken = False
        machine.wait_for("no more work is taken")
        assert "metadata: all right again" in machine.log


def test_metadata_that_fails_while_the_machine_is_leaving_does_not_call_it_back(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata:
        metadata.notify()
        with Machine(tmp_path, metadata, NOWHERE) as machine:
            (tmp_path / "projects" / "example.org").mkdir(parents=True)
            file = tmp_path / "projects" / "example.org" / "vcdl_finish_now"
            machine.wait_until(file.exists, "subtasks are told to finish")
            metadata.broken = True
            machine.wait_for("metadata: ")
            assert file.exists()


def test_a_mark_that_cannot_be_read_hides_no_notice(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    metadata.failing = "vcdl-drain"
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_for("metadata: ")
        metadata.notify()
        machine.wait_for("no more work is taken")


def test_nothing_is_taken_back_before_the_cloud_has_spoken(tmp_path: Path) -> None:
    file = tmp_path / "projects" / "example.org" / "vcdl_finish_now"
    file.parent.mkdir(parents=True)
    file.touch()
    with served(AwsMetadata()) as metadata:
        metadata.broken = True
        with Machine(tmp_path, metadata, NOWHERE) as machine:
            machine.wait_for("metadata: ")
            time.sleep(6)  # longer than it takes to look at the client again
            assert file.exists()
            metadata.broken = False
            machine.wait_until(lambda: not file.exists(), "the machine may stay")


def test_a_token_that_has_expired_is_replaced(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: any("vcdl-drain" in line for line in metadata.asked), "it has looked")
        metadata.tokens.clear()
        metadata.notify()
        machine.wait_for("no more work is taken")


def test_a_notice_that_is_withdrawn_lets_subtasks_go_on(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    file = tmp_path / "projects" / "example.org" / "vcdl_finish_now"
    file.parent.mkdir(parents=True)
    metadata.notify()
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(file.exists, "subtasks are told to finish")
        metadata.withdraw()
        machine.wait_until(lambda: not file.exists(), "the file is removed by who made it")


def test_what_an_agent_left_behind_before_the_machine_was_started_again_is_removed(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    file = tmp_path / "projects" / "example.org" / "vcdl_finish_now"
    file.parent.mkdir(parents=True)
    file.touch()
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: not file.exists(), "the file is gone")


def test_subtasks_of_a_drained_machine_are_told_to_finish_when_its_time_is_nearly_over(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    file = tmp_path / "projects" / "example.org" / "vcdl_finish_now"
    file.parent.mkdir(parents=True)
    metadata.mark(time.time())
    with Machine(tmp_path, metadata, NOWHERE, drain_s=900) as machine:
        machine.wait_for("all is reported")
        assert not file.exists(), "they have their time"
        machine.kill()
        metadata.mark(time.time() - 800)
        machine.start()
        machine.wait_until(file.exists, "they are told")


def test_a_machine_whose_project_is_away_too_long_is_powered_off(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    with Machine(tmp_path, metadata, NOWHERE, unreachable_s=4) as machine:
        machine.wait_until(lambda: machine.is_powered_off, "it is powered off")
        assert "of no use" in machine.log


def test_the_page_of_a_lapsed_domain_is_no_project(tmp_path: Path) -> None:
    with ExitStack() as stack:
        metadata = stack.enter_context(served(AwsMetadata()))
        url = stack.enter_context(web_page("<html>This domain is for sale.</html>"))
        machine = stack.enter_context(Machine(tmp_path, metadata, url, unreachable_s=4))
        machine.wait_until(lambda: machine.is_powered_off, "it is powered off")


def test_a_project_that_is_there_gives_the_set_up_its_time(tmp_path: Path) -> None:
    with ExitStack() as stack:
        metadata = stack.enter_context(served(AwsMetadata()))
        url = stack.enter_context(web_page(PROJECT_PAGE))
        machine = stack.enter_context(Machine(tmp_path, metadata, url, unreachable_s=2))
        time.sleep(9)
        assert not machine.is_powered_off
        machine.kill()
        (tmp_path / "state" / "no_use_s").write_text("1799")
        machine.start()
        machine.wait_until(lambda: machine.is_powered_off, "it never had a client")


def test_a_machine_whose_client_no_longer_answers_is_of_no_use(tmp_path: Path) -> None:
    with ExitStack() as stack:
        metadata = stack.enter_context(served(AwsMetadata()))
        url = stack.enter_context(web_page(PROJECT_PAGE))
        machine = Machine(tmp_path, metadata, url, unreachable_s=2, boinccmd=["false"])
        (tmp_path / "state" / "no_use_s").write_text("1799")
        stack.enter_context(machine)
        machine.wait_until(lambda: machine.is_powered_off, "it is powered off")


def test_time_without_the_project_adds_up_over_agents_that_are_killed(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata, Machine(tmp_path, metadata, NOWHERE, unreachable_s=3600) as machine:
        kept = tmp_path / "state" / "no_use_s"
        machine.wait_for("project: ")
        machine.kill()
        kept.write_text("3598\n")
        machine.start()
        machine.wait_until(lambda: machine.is_powered_off, "it has been away for an hour, all in all")


@pytest.mark.parametrize("left", ["", "not a number", "nan"])
def test_a_damaged_count_begins_anew(left: str, tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata:
        machine = Machine(tmp_path, metadata, NOWHERE, unreachable_s=4)
        (tmp_path / "state" / "no_use_s").write_text(left)
        with machine:
            machine.wait_until(lambda: machine.is_powered_off, "it is powered off")


def test_sigterm_ends_the_agent_at_once_unless_the_machine_shuts_down(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    with Machine(tmp_path, metadata, NOWHERE) as machine:
        machine.wait_until(lambda: metadata.asked, "it has looked")
        assert machine.kill(signal.SIGTERM) == 0
        assert "asked to end" in machine.log


def test_a_configuration_that_cannot_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    with served(AwsMetadata()) as metadata:
        machine = Machine(tmp_path, metadata, NOWHERE)
        machine.config.write_text('{"cloud": "aws", "colour": 1}')
        machine.start()
        assert machine.wait() == 1
        assert "colour" in machine.log
        assert "Traceback" not in machine.log


def test_the_agent_needs_nothing_but_the_standard_library_of_python_3_9() -> None:
    paths = sorted(AGENT.rglob("*.py"))
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9)))]
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if node.level == 0}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    ours = {(node.module, node.level) for node in nodes if isinstance(node, ast.ImportFrom) if node.level}
    assert ours <= {(path.stem, 1) for path in paths if path.parent == AGENT}
