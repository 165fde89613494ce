"""A journal that is deleted or replaced under the hands of those who have it open."""

from pathlib import Path

import pytest

from tests.read_only import read_only
from vcdl.errors import JournalError
from vcdl.journal.events import RunPaused, RunStarted
from vcdl.journal.journal import Journal


def kinds(path: Path) -> list[str]:
    journal = Journal.existing(path)
    try:
        return [row.event.kind for row in journal.read()]
    finally:
        journal.close()


@pytest.mark.parametrize("deleted", ["journal.db", "journal.db*"])
def test_a_journal_that_is_deleted_while_it_is_written_is_put_back_whole(tmp_path: Path, deleted: str) -> None:
    path = tmp_path / "journal.db"
    ours, another = Journal.at(path), Journal.at(path)
    ours.append(RunStarted(False))
    another.append(RunPaused("interrupted"))
    for file in tmp_path.glob(deleted):
        file.unlink()
    with pytest.raises(JournalError, match=r"was deleted while the run .* restored"):
        ours.append(RunStarted(True))
    with pytest.raises(JournalError, match=r"was deleted or replaced .* `vcdl resume` continues from it"):
        another.read()
    ours.close()
    another.close()
    assert kinds(path) == ["run_started", "run_paused"]
    assert {file.name for file in tmp_path.iterdir()} <= {"journal.db", "journal.db-wal", "journal.db-shm"}


def test_a_reader_puts_nothing_back_and_says_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.at(path).append(RunStarted(False))
    reader = Journal.read_only(path)
    path.unlink()
    with pytest.raises(JournalError, match=r"journal\.db is missing, .*restore a copy of it.*vcdl export .*vcdl run "):
        reader.read()
    assert not path.exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_the_journal_of_a_prepared_run_is_not_made_a_second_time(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "journal.db"
    if is_there:
        path.touch()  # cut to nothing
    with pytest.raises(JournalError, match=r"journal\.db is missing"):
        Journal.existing(path)
    assert path.exists() is is_there


@pytest.mark.process
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("was_killed", [False, True])
def test_a_journal_is_read_where_nothing_can_be_written(tmp_path: Path, is_open: bool, was_killed: bool) -> None:
    """With the log of a process that was killed, with that of one that continues, and with none."""
    path = tmp_path / "run" / "journal.db"
    path.parent.mkdir()
    journal = Journal.at(path)
    journal.append(RunStarted(False))
    if was_killed:
        log = path.with_name("journal.db-wal").read_bytes()
    if not is_open:
        journal.close()
    if was_killed and not is_open:
        path.with_name("journal.db-wal").write_bytes(log)
    before = sorted(path.parent.iterdir())
    with read_only(path.parent) as folder:
        reader = Journal.read_only(folder / "journal.db")
        assert [row.event for row in reader.read()] == [RunStarted(False)]
        reader.close()
    assert sorted(path.parent.iterdir()) == before
