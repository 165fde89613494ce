"""The child process: its errors are those of vcdl.errors, and a run that is finished is not run again."""

import signal
from pathlib import Path

import pytest

from tests.run_folders import make_run
from vcdl.api.handle import RunHandle
from vcdl.api.order import ChildOrder
from vcdl.api.process import RunProcess
from vcdl.errors import ExitCode, JobError, RunFolderError, VcdlError
from vcdl.run.folder import RunLock
from vcdl.run.reading import RunState

pytestmark = pytest.mark.process

TIMEOUT_S = 120.0


def test_an_order_travels_unchanged() -> None:
    order = ChildOrder("simulate", "/tmp/ä b", "job.yaml", ("stop.epochs=2",), client_settings=("lost=0.3",))
    assert ChildOrder.of_line(order.to_line()) == order


def test_a_refused_job_raises_what_is_wrong_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: demo\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 0}\n")
    with pytest.raises(JobError, match=r"job.yaml:3: data > shards: expected a whole number ≥ 1, got 0") as refused:
        RunHandle.begin(ChildOrder("run", str(tmp_path / "run"), str(tmp_path / "job.yaml")), shows=False)
    assert refused.value.exit_code is ExitCode.BAD_JOB
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_a_run_that_another_process_holds_is_refused_by_the_nearest_public_error(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    with RunLock(folder), pytest.raises(RunFolderError, match="is being run by process") as refused:
        RunHandle.begin(ChildOrder("resume", str(folder.path)), shows=False)
    assert type(refused.value) is RunFolderError


def test_resuming_a_finished_run_does_nothing(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    before = folder.summary_file.stat().st_mtime_ns
    assert RunHandle.open(folder.path).resume(show=False).wait(show=False).status is RunState.FINISHED
    assert folder.summary_file.stat().st_mtime_ns == before


def test_a_process_that_is_killed_is_told_of(tmp_path: Path) -> None:
    process = RunProcess(ChildOrder("resume", str(tmp_path / "run")))
    process._process.send_signal(signal.SIGKILL)
    assert process.wait(TIMEOUT_S)
    assert isinstance(process.failure, VcdlError)
    assert "the process of the run died (killed by signal 9" in str(process.failure)
    assert ".resume()` continues" in str(process.failure)
