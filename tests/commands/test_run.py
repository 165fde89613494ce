"""`vcdl run` and `vcdl resume`: where a run may begin. What happens in a run is tested end to end."""

import json
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from vcdl.commands.resume import resume
from vcdl.commands.run import run
from vcdl.errors import ExitCode, RunFolderError
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder, RunIsBusy, RunLock
from vcdl.run.reading import RunState, read_report, state_of

pytestmark = [pytest.mark.process, pytest.mark.keras]

JOB = "name: demo\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 2}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_an_unfinished_run_is_refused_with_both_ways_on(here: Path) -> None:
    make_run(here / "runs" / "demo", recorded(FIRST_SESSION), finished=False)
    before = sorted((here / "runs").rglob("*"))
    for out in (None, Path("runs/demo")):
        with pytest.raises(RunFolderError, match="`vcdl resume runs/demo`, or choose another folder with --out"):
            run(Path("job.yaml"), out)
    assert sorted((here / "runs").rglob("*")) == before


def test_a_folder_that_another_process_has_just_taken_is_left_to_it(here: Path) -> None:
    taken = RunFolder(here / "taken")
    taken.make()  # as it is between the other's mkdir and its first file
    with RunLock(taken), pytest.raises(RunIsBusy):
        run(Path("job.yaml"), Path("taken"))
    assert taken.path.is_dir()


def test_a_run_that_is_interrupted_before_its_first_subtask_is_paused_and_not_killed(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: RunFolder, __: RunObserver) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcdl.local.run.run_locally", interrupted)
    assert run(Path("job.yaml")) is ExitCode.INTERRUPTED
    assert "paused; `vcdl resume runs/demo` continues" in capsys.readouterr().err
    folder = RunFolder.existing(here / "runs" / "demo")
    assert state_of(folder, read_report(folder)) is RunState.PAUSED


def test_two_processes_cannot_resume_one_run(here: Path) -> None:
    folder = make_run(here / "a", recorded(FIRST_SESSION), finished=False)
    with RunLock(folder), pytest.raises(RunIsBusy, match="is being run by process"):
        resume(folder.path)


def test_resuming_a_finished_run_prints_its_results_and_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(here / "a")
    folder.plot_file.touch()
    before = folder.journal_file.read_bytes(), folder.summary_file.read_bytes()
    assert resume(Path("a")) is ExitCode.OK
    assert capsys.readouterr().out == (
        "finished after 2 epochs and 55 s of training: all epochs are done\n"
        "validation           accuracy 0.7900, loss 0.3 (50 samples)\n"
        "test                 accuracy 0.7700, loss 0.3 (50 samples)\n"
        "model                a/model.keras\n"
        "plot                 a/curves.png\n"
        "summary              a/summary.json\n"
    )
    assert resume(Path("a"), as_json=True) is ExitCode.OK
    assert json.loads(capsys.readouterr().out) == json.loads(folder.summary_file.read_text())
    assert (folder.journal_file.read_bytes(), folder.summary_file.read_bytes()) == before
    folder.plot_file.unlink()
    assert resume(Path("a")) is ExitCode.OK
    assert "plot                 not drawn: `pip install 'vcdl[plot]'`, then `vcdl plot a`" in capsys.readouterr().out
