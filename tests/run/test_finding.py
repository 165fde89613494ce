"""Finding runs, their states, and reading them while somebody else writes."""

import os
import time
from itertools import islice
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import make_run
from vcdl.errors import JournalError, RunFolderError
from vcdl.journal.journal import Journal
from vcdl.report.measures import Report
from vcdl.run.finding import find_run, new_run, numbered_names
from vcdl.run.folder import RunLock
from vcdl.run.reading import RunState, read_report, state_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_finished_runs_are_numbered_on(here: Path) -> None:
    make_run(here / "runs" / "demo")
    make_run(here / "runs" / "demo-2")
    assert new_run("demo").path == here / "runs" / "demo-3"


def test_an_unfinished_run_is_not_begun_over(here: Path) -> None:
    make_run(here / "runs" / "demo")
    make_run(here / "runs" / "demo-2", recorded(FIRST_SESSION), finished=False)
    with pytest.raises(RunFolderError, match=r"`vcdl resume runs/demo-2`, or choose another folder with --out"):
        new_run("demo")


def test_the_run_that_changed_last_is_the_one_that_is_meant(here: Path) -> None:
    older, newer = make_run(here / "runs" / "a"), make_run(here / "runs" / "b")
    for number, folder in enumerate((older, newer)):
        for path in (folder.job_file, folder.journal_file):
            os.utime(path, (1000 + number, 1000 + number))
    assert find_run(None).path == newer.path
    Journal.at(older.journal_file).append(WHOLE_RUN[0].event, time_s=time.time())
    assert find_run(None).path == older.path
    assert find_run(Path("runs/b")).path == newer.path
    with RunLock(newer):
        assert find_run(None).path == newer.path, "it runs"
        assert find_run(None, running_first=False).path == older.path, "as resume wants it"


def test_the_states_of_a_run(here: Path) -> None:
    session = recorded(FIRST_SESSION)
    killed = make_run(here / "killed", session[:-1], finished=False)
    assert state_of(killed, read_report(killed)) is RunState.KILLED
    with RunLock(killed):
        assert state_of(killed, read_report(killed)) is RunState.RUNNING
    paused = make_run(here / "paused", session, finished=False)
    assert state_of(paused, read_report(paused)) is RunState.PAUSED
    finished = make_run(here / "finished")
    assert state_of(finished, read_report(finished)) is RunState.FINISHED


@pytest.mark.parametrize("name", ["plain", "with space", "what?mode=rw&x#y%41", "ü"])
def test_reading_a_run_writes_nothing_whatever_its_folder_is_called(here: Path, name: str) -> None:
    folder = make_run(here / "made")
    folder.path.rename(here / name)
    folder = type(folder)(here / name)
    before = folder.journal_file.read_bytes()
    assert read_report(folder).totals.applied == 4
    assert folder.journal_file.read_bytes() == before


def test_a_run_is_read_while_it_is_written(here: Path) -> None:
    folder = make_run(here / "a", recorded(FIRST_SESSION), finished=False)
    journal = Journal.at(folder.journal_file)
    for event in WHOLE_RUN[len(FIRST_SESSION) :]:
        journal.append(event.event, time_s=event.time_s)
        read_report(folder)
    assert read_report(folder).history.finished
    journal.close()


def test_a_prepared_run_without_its_journal_has_lost_it_and_one_that_is_being_prepared_has_none_yet(here: Path) -> None:
    folder = make_run(here / "run")
    folder.journal_file.unlink()
    assert read_report(folder) == Report()
    folder.prepared_file.touch()
    with pytest.raises(JournalError, match=r"journal\.db is missing"):
        read_report(folder)


def test_a_numbered_name_is_no_longer_than_a_job_s_name() -> None:
    assert list(islice(numbered_names("demo"), 3)) == ["demo", "demo-2", "demo-3"]
    numbered = list(islice(numbered_names(63 * "a"), 1000))
    assert numbered[1] == 61 * "a" + "-2"
    assert len({*numbered}) == 1000
    assert {len(name) for name in numbered} == {63}
