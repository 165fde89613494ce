"""`vcdl stop` asks the process that runs a folder to pause, and waits for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from vcdl.commands.stop import stop
from vcdl.errors import ExitCode, RunFolderError
from vcdl.run.folder import RunFolder

RUNNER = """
import sys, time
from pathlib import Path
from vcdl.run.folder import RunFolder, RunLock
folder = RunFolder(Path(sys.argv[1]))
with RunLock(folder):
    print("running", flush=True)
    while sys.argv[2] == "deaf" or not folder.stop_request.exists():
        time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    return make_run(tmp_path / "a", recorded(FIRST_SESSION), finished=False)


def runner(folder: RunFolder, kind: str) -> "subprocess.Popen[str]":
    """A process that holds the folder's lock, and listens to stop requests or not."""
    command = [sys.executable, "-c", RUNNER, str(folder.path), kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


@pytest.mark.process
def test_a_run_that_goes_on_is_stopped(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    process = runner(folder, "listening")
    assert stop(folder.path) is ExitCode.OK
    assert process.wait(timeout=10) == 0
    assert capsys.readouterr().out == "a stopped; `vcdl resume a` continues\n"
    assert not folder.stop_request.exists()


@pytest.mark.process
def test_a_run_that_does_not_listen_is_named_after_the_timeout(folder: RunFolder) -> None:
    process = runner(folder, "deaf")
    try:
        with pytest.raises(RunFolderError, match=f"process {process.pid} still runs a after 0.2 s"):
            stop(folder.path, timeout_s=0.2)
        assert folder.stop_request.exists()
    finally:
        process.kill()
        process.communicate()


def test_a_run_that_nobody_runs_is_left_as_it_is(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert stop(folder.path) is ExitCode.OK
    assert capsys.readouterr().out == "a was not being run; `vcdl resume a` continues\n"
    assert not folder.stop_request.exists()


def test_of_a_finished_run_nothing_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop(make_run(tmp_path / "done").path)
    assert "is finished; there is nothing to stop" in capsys.readouterr().out
