"""A new client in the middle of a job on a real BOINC server (see test_real_server.py)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject
from tests.places import ROOT
from vcdl.journal.events import UpdateApplied
from vcdl.run.reading import events_of, read_report

JOB = """
name: upgrade
model: {builtin: {name: mlp, units: [64]}}
data: {dataset: digits, shards: 6}
training: {learning_rate: 0.01, local_epochs: 400}
validate: {every: epoch}
stop: {epochs: 3}
boinc: {shortest_deadline_s: 3600}
"""
SUBTASKS = 18

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def test_hosts_move_to_a_new_client_in_the_middle_of_a_job_without_losing_a_task(
    real: RealProject, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    run = real.submit(tmp_path / "job.yaml")
    with real.client(tmp_path / "client", cpus=2) as client:
        client.wait_until(
            lambda: read_report(run).totals.applied >= 2 and _executing(client),
            "tasks run under the old client",
            timeout_s=TIMEOUT_S,
            asking=True,
        )
        held = _executing(client)
        _install_changed_client(real, tmp_path / "changed")
        client.wait_until(run.summary_file.is_file, "the job is finished", timeout_s=2 * TIMEOUT_S, asking=True)
        applied = [update.key for update in events_of(run, UpdateApplied)]
    assert len(applied) == len(set(applied)) == SUBTASKS
    assert read_report(run).totals.failed == 0
    numbers = _version_numbers(real)
    assert len(set(numbers.values())) == 2
    assert {numbers[name] for name in held} == {min(numbers.values())}, "running tasks kept the version they began with"
    assert max(numbers.values()) in numbers.values()


def _executing(client: BoincClient) -> list[str]:
    return [name for name, task in client.tasks().items() if task.executing]


def _install_changed_client(real: RealProject, folder: Path) -> None:
    """Install from a copy of VCDL whose client differs by a line."""
    for name in ("vcdl", "wrappers", "templates", "boinc_project"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    client = folder / "vcdl" / "client" / "boinc.py"
    client.write_text(f"{client.read_text()}\n# The next version.\n")
    command = [sys.executable, "-m", "vcdl", "project", "install", "--project-dir", str(real.path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed and published" in done.stdout


def _version_numbers(real: RealProject) -> dict[str, int]:
    """Result → the number of the app version that trained it."""
    rows = real.rows(
        "SELECT r.name, v.version_num FROM result r JOIN app_version v ON v.id = r.app_version_id "
        "WHERE r.name LIKE 'upgrade\\_e%%' AND r.outcome = 1"
    )
    return {str(name): int(str(number)) for name, number in rows}
