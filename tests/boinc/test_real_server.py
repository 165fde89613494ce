"""Against a real BOINC server: `make test-boinc PROJECT_DIR=…`, a project that make_project made and that has
no app of ours yet.

Install, doctor, a job submitted, trained by Debian's real client to its end, stopped, resumed, a second
submission without a second download of the shards, uninstall. Skipped without PROJECT_DIR; the stand-in's tests
run everywhere (tests/end_to_end/test_boinc.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.journal.events import UpdateApplied
from vcdl.run.finding import events_of, read_report
from vcdl.run.folder import RunFolder

VARIABLE = "VCDL_BOINC_PROJECT_DIR"
PATIENCE_S = 400.0
JOB = """
name: real-server
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 4}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 2}
"""

pytestmark = [
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no BOINC project"),
    pytest.mark.timeout(1200),
]


def vcdl(project: BoincProject, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vcdl", *arguments, "--project-dir", str(project.path)], capture_output=True, text=True
    )


def done(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def bin_(project: BoincProject, program: str) -> None:
    subprocess.run([project.bin / program], cwd=project.path, check=True, capture_output=True)


def wait(condition: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain until {what}"
        time.sleep(0.5)


@pytest.fixture
def project() -> Iterator[BoincProject]:
    project = BoincProject.at(Path(os.environ[VARIABLE]))
    done(vcdl(project, "project", "install"))
    bin_(project, "start")
    try:
        yield project
    finally:
        bin_(project, "stop")
        time.sleep(5)  # under Python 3, bin/stop returns before the daemons have ended
        done(vcdl(project, "project", "uninstall", "--force", "--delete-runs"))


def account_key(project: BoincProject) -> str:
    database = BoincDatabase(project)
    rows = database.execute("SELECT authenticator FROM user ORDER BY id LIMIT 1")
    database.close()
    assert rows, "the project has no account: make one first, with BOINC's web page or create_account"
    return str(rows[0][0])


def staged(project: BoincProject) -> list[str]:
    """Ours in download/, below its fan-out folders."""
    return [
        path.name
        for path in project.download_dir.glob("*/*")
        if path.name.startswith(("vcdl_", "real-server")) and not path.name.startswith("vcdl_client")
    ]


def test_a_real_project_trains_a_job_from_install_to_uninstall(project: BoincProject, tmp_path: Path) -> None:
    wait(lambda: vcdl(project, "project", "doctor").returncode == 0, "doctor finds nothing wrong")
    (tmp_path / "job.yaml").write_text(JOB)
    python = {"VCDL_PYTHON": sys.executable}
    first = _submit(project, tmp_path / "job.yaml")
    with BoincClient(tmp_path / "client", project.master_url, account_key(project), 2, python) as client:
        client.wait_until(
            lambda: read_report(first).totals.applied, "an update is applied", patience_s=PATIENCE_S, asking=True
        )
        done(vcdl(project, "stop", first.path.name))
        wait(lambda: not staged(project), "a stopped job has nothing in download/")
        done(vcdl(project, "resume", first.path.name))
        client.wait_until(first.summary_file.is_file, "the job is finished", patience_s=PATIENCE_S, asking=True)
        report = read_report(first)
        assert len({update.key for update in events_of(first, UpdateApplied)}) == 8
        assert report.totals.failed == 0
        assert report.final_test is not None
        wait(lambda: not staged(project), "a finished job has nothing in download/")

        shards = client.log.count("Finished download of vcdl_")
        second = _submit(project, tmp_path / "job.yaml", "--set", "stop.epochs=1")
        client.wait_until(second.summary_file.is_file, "the second is finished", patience_s=PATIENCE_S, asking=True)
        versions = len({update.base_version for update in events_of(second, UpdateApplied)})
        assert (
            client.log.count("Finished download of vcdl_") - shards == versions
        )  # weights, and neither model nor shard


def _submit(project: BoincProject, job: Path, *more: str) -> RunFolder:
    words = done(vcdl(project, "submit", str(job), *more))
    return project.run_folder(words.split(":")[0].removeprefix("submitted "))
