"""A job over BOINC from `vcdl project install` to its results: real commands, real daemons, Debian's real
client, a stand-in for BOINC's server.
"""

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.standin import StandinServer
from tests.end_to_end.boinc_grid import DAEMONS, TIMEOUT_S, Grid, a_grid, wait
from vcdl.journal.events import UpdateApplied
from vcdl.run.reading import events_of, read_report

pytestmark = pytest.mark.boinc

JOB = """
name: digits
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 3}
training: {learning_rate: 0.01}
update: {rule: vc_asgd, alpha: 0.5}
validate: {every: epoch}
stop: {epochs: 1}
"""


@pytest.fixture
def grid() -> Iterator[Grid]:
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, a_grid(Path(folder)) as made:
        yield made


@pytest.mark.timeout(600)
def test_a_job_is_trained_by_real_clients_though_everything_is_killed_once(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    assert "submitted digits" in grid.vcdl("submit", str(tmp_path / "job.yaml"))
    for name in DAEMONS:
        grid.start(name)
    python = {"VCDL_PYTHON": sys.executable}
    with (
        StandinServer(grid.project) as server,
        BoincClient(tmp_path / "client", grid.project.url, grid.project.account_key, 2, python) as client,
    ):
        wait(lambda: grid.report("digits").totals.applied >= 1, "an update is applied")
        grid.kill("vcdl_assimilator")
        grid.kill("vcdl_work_generator")
        client.kill()
        grid.redis.kill()  # without persistence: its memory is gone
        grid.redis.start()
        client.start()
        for name in ("vcdl_work_generator", "vcdl_assimilator"):
            grid.start(name)
        first = grid.run("digits")
        client.wait_until(first.summary_file.is_file, "it is finished", asking=True, timeout_s=TIMEOUT_S)
        report = read_report(first)
        assert report.stop is not None
        assert report.stop.reason == "epochs"
        assert len({update.key for update in events_of(first, UpdateApplied)}) == report.totals.applied >= 3
        assert report.final_test is not None
        assert report.final_test.accuracy is not None
        assert report.final_test.accuracy > 0.4
        wait(lambda: not grid.staged(), "nothing of the job is left in download/")

        # Submitted again: another job with the same shards, and the client has them.
        loads = shard_downloads(server)
        assert "submitted digits-2" in grid.vcdl("submit", str(tmp_path / "job.yaml"), "--set", "stop.epochs=2")
        client.wait_until(
            lambda: grid.report("digits-2").history.closed, "an epoch is over", asking=True, timeout_s=TIMEOUT_S
        )
        assert shard_downloads(server) == loads

        grid.vcdl("stop", "digits-2")
        assert "paused" in grid.vcdl("status", "digits-2")
        assert not grid.staged()
        client.wait_until(lambda: not shards_of(client), "the client has deleted the shards", asking=True)
        grid.vcdl("resume", "digits-2")
        second = grid.run("digits-2")
        client.wait_until(second.summary_file.is_file, "it is finished too", asking=True, timeout_s=TIMEOUT_S)
        assert read_report(second).totals.failed == 0
    assert grid.kill("vcdl_evaluator", signal.SIGHUP) == -signal.SIGHUP
    assert grid.kill("vcdl_assimilator", signal.SIGHUP) == -signal.SIGHUP
    grid.vcdl("project", "uninstall")


def shards_of(client: BoincClient) -> set[str]:
    return {name for name in client.files if name.endswith(".npz")}


def shard_downloads(server: StandinServer) -> int:
    return sum(download.name.endswith(".npz") and download.offset_bytes == 0 for download in server.downloads)
