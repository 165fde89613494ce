"""A run's handle over folders of every kind, without training."""

import threading
from pathlib import Path

import pytest

import vcdl
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import make_run
from vcdl.errors import RunFolderError, VcdlError
from vcdl.journal.events import RunFinished, RunPaused, StopDecided, WorkunitFailed
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.kind import BOINC, SIMULATED
from vcdl.run.reading import RunState


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finished_run_tells_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(here / "run")
    run = vcdl.open("run")
    assert repr(run) == "<vcdl.Run demo in run: finished, 2 epochs measured>"
    assert (run.name, run.folder, run.status) == ("demo", here / "run", RunState.FINISHED)
    assert run.status == "finished"
    assert run.summary["epochs"] == 2
    assert [event.kind for event in run.events()] == [row.event.kind for row in WHOLE_RUN]
    assert run.wait() is run
    assert "finished after 2 epochs" in capsys.readouterr().out
    assert run.wait(show=False).stop() is run
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("host", [BOINC, SIMULATED], ids=lambda host: host.name)
def test_the_same_is_told_of_runs_elsewhere(here: Path, host: object) -> None:
    make_run(here / "run", host=host)  # type: ignore[arg-type]
    run = vcdl.open(here / "run").wait(show=False)
    assert run.status is RunState.FINISHED
    assert run.history.epoch == [0, 1]
    assert isinstance(list(run.events())[-1], RunFinished)


def test_a_folder_without_a_run_is_refused(here: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no folder nothing"):
        vcdl.open("nothing")


def test_a_simulated_run_is_not_resumed(here: Path) -> None:
    make_run(here / "run", recorded(FIRST_SESSION), finished=False, host=SIMULATED)
    with pytest.raises(RunFolderError, match="run cannot be resumed: `vcdl simulate` with the same settings starts it"):
        vcdl.open("run").resume()


def test_a_job_of_a_project_is_released(here: Path) -> None:
    folder = make_run(here / "run", recorded(FIRST_SESSION), finished=False, host=BOINC)
    folder.stop_request.touch()
    assert vcdl.open("run").resume().status is not RunState.PAUSED or not folder.stop_request.exists()
    assert not folder.stop_request.exists()


def given_up(path: Path) -> RunFolder:
    failed = WorkunitFailed("demo_e0001_s001_a4_v000000", "out of memory")
    return make_run(path, recorded([*FIRST_SESSION, (30, failed), (31, StopDecided("subtask_failed", 1))]))


def test_a_run_that_was_given_up_raises_why(here: Path) -> None:
    given_up(here / "run")
    run = vcdl.open("run")
    assert run.status is RunState.FAILED
    with pytest.raises(
        VcdlError, match=r"a shard was tried 5 times and always failed .shard 1 of epoch 1.*out of memory"
    ):
        run.wait(show=False)
    with pytest.raises(VcdlError, match="always failed"):
        list(run.events())
    assert list(run.events(follow=False))


def test_a_run_of_another_process_is_followed_to_its_pause(here: Path) -> None:
    folder = make_run(here / "run", recorded(FIRST_SESSION[:3]), finished=False)
    run = vcdl.open("run")
    seen: list[str] = []
    with RunLock(folder):
        assert run.status is RunState.RUNNING
        with pytest.raises(TimeoutError, match="run still runs"):
            run.wait(timeout_s=0, show=False)
        reader = threading.Thread(target=lambda: seen.extend(event.kind for event in run.events()))
        reader.start()
        journal = Journal.at(folder.journal_file)
        journal.append(RunPaused("stop was requested"))
        journal.close()
    reader.join(timeout=60)
    assert seen == [*(event.kind for _, event in FIRST_SESSION[:3]), "run_paused"]
    assert run.wait(show=False).status is RunState.PAUSED
