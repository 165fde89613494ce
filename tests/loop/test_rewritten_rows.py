"""A journal that was put back from an older copy, beside a store that continued: each update counts once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import applied
from tests.loop.conftest import backups_on
from tests.loop.test_recovery import served
from tests.served_run import ServedRun, noise
from tests.store_backups import Backups
from vcdl.journal.events import RowsRewritten, UpdateApplied, WorkunitCreated
from vcdl.journal.lineage import Lineage
from vcdl.loop.recovery import restore_store
from vcdl.loop.rewritten_rows import rewrite_rows

pytestmark = pytest.mark.server

WEIGHTS = 300


@pytest.fixture(scope="module", params=["redis", "mariadb"])
def backups(request: pytest.FixtureRequest) -> Iterator[Backups]:
    with backups_on(request.param) as backups:
        yield backups


@pytest.fixture
def run(backups: Backups, tmp_path: Path) -> ServedRun:
    """Five updates are in the store; the folder is a copy from when there were two."""
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), backups.url)
    fold(run, 2)
    shutil.copytree(run.folder.path, tmp_path / "copy")
    fold(run, 3, first=2)
    for part in run.folder.path.iterdir():  # the folder stays: another one would be a copy, with weights of its own
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    shutil.copytree(tmp_path / "copy", run.folder.path, dirs_exist_ok=True)
    return run


def fold(run: ServedRun, count: int, first: int = 0, base_version: int = 0) -> None:
    journal = run.run.journal()
    for number in range(first, first + count):
        journal.append(WorkunitCreated(run.bring(number, noise(number + 1, WEIGHTS), base_version)))
    served(run).run_once()
    journal.close()


def test_the_lost_rows_are_written_again_and_the_store_can_be_restored(run: ServedRun) -> None:
    store, journal = run.run.store(run.run.journal()), run.run.journal()
    assert rewrite_rows(run.run, store, journal) == 3
    rows = [(update.version, update.base_version) for update in applied(run.folder.path)]
    assert rows == [(version, 0) for version in range(1, 6)]
    assert [row.event for row in journal.stream(kinds=[RowsRewritten])] == [RowsRewritten(5, 3)]
    made = store.read()[1].tobytes()
    store.drop()
    assert restore_store(run.run, store, journal) == 0
    assert (store.version(), store.read()[1].tobytes()) == (6, made)
    fold(run, 4, first=2, base_version=5)
    assert store.version() == 7, "the subtasks of the lost rows are brought again, and counted before"
    assert rewrite_rows(run.run, store, journal) == 0, "there is nothing left to do"


def test_the_version_of_the_rewritten_rows_is_a_base(run: ServedRun) -> None:
    store, journal = run.run.store(run.run.journal()), run.run.journal()
    rewrite_rows(run.run, store, journal)
    lineage = Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))
    assert lineage.bases == {0: 0, 5: 0}
    fold(run, 2, first=5, base_version=5)
    made = store.read()[1].tobytes()
    store.drop()
    assert restore_store(run.run, store, journal) == 2, "those since then"
    assert (store.version(), store.read()[1].tobytes()) == (8, made)


def test_a_server_that_was_killed_before_its_row_is_no_lost_row(backups: Backups, tmp_path: Path) -> None:
    """Its upload is claimed again, and says more than the store's record."""
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), backups.url)
    fold(run, 2)
    journal = run.run.journal()
    with journal._connection as connection:
        connection.execute("DELETE FROM events WHERE key = ?", (UpdateApplied.key_of("e0001_s001"),))
    assert rewrite_rows(run.run, run.store, journal) == 0
