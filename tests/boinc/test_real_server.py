"""A job against a real BOINC server: `make test-boinc PROJECT_DIR=…`, a project that make_project made and that has
no app of ours yet.

Install, doctor, a job submitted, trained by Debian's real client to its end, stopped, resumed, a second
submission without a second download of the shards, uninstall. Skipped without PROJECT_DIR; the stand-in's tests
run everywhere (tests/end_to_end/test_boinc.py).
"""

from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject, wait
from vcdl.journal.events import UpdateApplied
from vcdl.run.reading import events_of, read_report
from vcdl.wire.workunit import WorkunitName

JOB = """
name: real-server
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 4}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 2}
"""

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1200)]


def test_a_real_project_trains_a_job_from_install_to_uninstall(real: RealProject, tmp_path: Path) -> None:
    wait(lambda: real.run("project", "doctor").returncode == 0, "doctor finds nothing wrong")
    (tmp_path / "job.yaml").write_text(JOB)
    first = real.submit(tmp_path / "job.yaml")
    with real.client(tmp_path / "client") as client:
        client.wait_until(
            lambda: read_report(first).totals.applied, "an update is applied", timeout_s=TIMEOUT_S, asking=True
        )
        real.vcdl("stop", first.path.name)
        wait(lambda: not real.staged(), "a stopped job has nothing in download/")
        real.vcdl("resume", first.path.name)
        client.wait_until(first.summary_file.is_file, "the job is finished", timeout_s=TIMEOUT_S, asking=True)
        report = read_report(first)
        assert len({update.key for update in events_of(first, UpdateApplied)}) == 8
        assert report.totals.failed == 0
        assert report.final_test is not None
        wait(lambda: not real.staged(), "a finished job has nothing in download/")

        shards = client.log.count("Finished download of vcdl_")
        second = real.submit(tmp_path / "job.yaml", "--set", "stop.epochs=1")
        client.wait_until(second.summary_file.is_file, "the second is finished", timeout_s=TIMEOUT_S, asking=True)
        names = [WorkunitName.parse(update.workunit) for update in events_of(second, UpdateApplied)]
        versions = len({name.base_version for name in names})
        assert (
            client.log.count("Finished download of vcdl_") - shards == versions
        )  # weights, and neither model nor shard
        wait(lambda: not [*real.project.upload_dir.glob("*/*")], "file_deleter has freed upload/")
