"""The end of a store's weights: put back when the server has lost them, dropped when the job is over."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import applied
from tests.served_run import ServedRun, noise
from tests.stores.conftest import redis_client
from vcdl.errors import StoreError, StoreLost
from vcdl.journal.events import EpochClosed, Event, StopDecided, StopReason, StoreRestored
from vcdl.journal.journal import Journal
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.grid import Outcome, Results
from vcdl.loop.parameter_server import ParameterServer
from vcdl.loop.recovery import drop_weights
from vcdl.run.folder import RestoreLock
from vcdl.stores.redis import RedisStore
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.server

WEIGHTS = 1000


@pytest.fixture
def run(redis_url: str, tmp_path: Path) -> ServedRun:
    """Three updates were folded in, and the server has forgotten them."""
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), redis_url)
    for number in range(3):
        run.bring(number, noise(number + 1, WEIGHTS))
    served(run).run_once()
    redis_client(redis_url).flushall()
    return run


def served(run: ServedRun) -> ParameterServer:
    return ParameterServer.of(run.run, run.run.journal(), UploadFolder(run.folder))


def test_the_snapshot_and_the_kept_uploads_make_the_same_weights_to_the_last_bit(run: ServedRun) -> None:
    server = served(run)
    assert server.restore() == 3
    version, weights = server.store.read()
    assert (version, weights.tobytes()) == (4, run.replayed().tobytes())
    assert server.catch_up() == 0, "there is nothing left to do"


def test_an_upload_whose_server_was_killed_after_its_row_is_kept_already(run: ServedRun) -> None:
    server = served(run)
    server.restore()
    run.bring(3, noise(4, WEIGHTS))
    killed = ParameterServer.of(run.run, run.run.journal(), _NeverDone(UploadFolder(run.folder)))
    with pytest.raises(KeyboardInterrupt):
        killed.run_once()
    server.store.drop()
    assert server.restore() == 4
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()


@dataclass
class _NeverDone(Results):
    """The results of a server that is killed before it has concluded the first of them."""

    results: Results

    def claim(self) -> Sequence[Outcome]:
        return self.results.claim()

    def done(self, workunit: str, version: int | None = None) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("reason", StopReason)
def test_the_weights_of_a_job_that_is_over_are_dropped_unless_it_may_be_tried_again(
    run: ServedRun, redis_url: str, reason: StopReason
) -> None:
    server = served(run)
    server.restore()
    drop_weights(server.store, run.run.snapshots(server.store), StopDecided(reason, 4))
    assert server.store.version() == 4, "its last version is not on disk yet"
    run.run.snapshots(server.store).keep_newest(durable=True)
    drop_weights(server.store, run.run.snapshots(server.store), StopDecided(reason, 4))
    if reason == StopReason.SUBTASK_FAILED:
        assert server.store.version() == 4
    else:
        assert not redis_client(redis_url).keys(f"vcdl:{{{run.prepared.store_key}}}*")
        with pytest.raises(StoreLost):
            server.store.version()


def test_a_snapshot_with_an_update_that_has_no_row_is_passed_over(run: ServedRun) -> None:
    """Its server was killed before it wrote the row: it will be brought again, and must not count twice."""
    server = served(run)
    server.restore()
    run.run.snapshots(server.store).keep(5, noise(99, WEIGHTS))
    server.store.drop()
    assert server.restore() == 3
    assert server.store.version() == 6, "clients may have begun with it"
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()


def test_killed_between_the_event_and_the_weights_the_next_server_makes_that_version(
    run: ServedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RedisStore, "restore", killed)
        with pytest.raises(KeyboardInterrupt):
            served(run).restore()

    def events() -> list[Event]:
        with closing(run.run.journal()) as journal:
            return [row.event for row in journal.stream(kinds=[StoreRestored])]

    assert events() == [StoreRestored(4, 3, lost=0)], "first, or the store would have a version that nothing tells of"
    server = served(run)
    assert server.restore() == 3
    run.bring(3, noise(4, WEIGHTS))
    server.run_once()
    assert server.store.version() == 5
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()
    assert events() == [StoreRestored(4, 3, lost=0)], "and once"


def test_what_an_eventual_store_had_overwritten_at_the_end_of_the_epoch_stays_counted(
    redis_url: str, tmp_path: Path
) -> None:
    """What was overwritten since then is folded in again; a snapshot amid the epoch does not say what is
    missing in it.
    """
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), redis_url, "eventual")
    server = served(run)
    for number in range(4):
        run.bring(number, noise(number + 1, WEIGHTS))
        if number == 2:
            version = run.run.snapshots(server.store).keep_newest(durable=True)
            Journal.at(run.folder.journal_file).append(EpochClosed(1, version, 1))
        server.run_once()
    run.run.snapshots(server.store).keep_newest()
    server.store.drop()
    assert served(run).restore() == 2, "from the epoch's end, not from the newest snapshot"
    assert server.store.version() == 5
    assert server.store.lost_updates() == 1
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()


def test_when_another_server_has_restored_there_is_nothing_to_do(run: ServedRun) -> None:
    first, second = served(run), served(run)
    assert first.restore() == 3
    assert second.restore() == 0
    assert second.store.version() == 4


def test_nobody_restores_while_a_fold_has_no_row_yet(run: ServedRun) -> None:
    """What the journal says of a version must be in it."""
    lock = RestoreLock(run.folder)
    restored = threading.Thread(target=lambda: served(run).restore())
    with lock.folding(shared=True), lock.folding(shared=True):
        restored.start()
        restored.join(0.3)
        assert restored.is_alive()
    restored.join(10)
    assert served(run).store.version() == 4


def test_what_is_folded_again_are_the_bytes_that_were_folded_in(run: ServedRun, redis_url: str) -> None:
    """The journal loses its last row and the store all: the subtask's kept upload is another one's."""
    server = served(run)
    server.restore()
    forget_updates(run, after_version=2)
    redis_client(redis_url).flushall()
    run.bring(2, noise(33, WEIGHTS))
    server.restore()
    server.run_once()
    made = server.store.read()[1]
    redis_client(redis_url).flushall()
    assert server.restore() == 3
    assert server.store.read()[1].tobytes() == made.tobytes() == run.replayed().tobytes()


def test_weights_of_a_version_that_is_forgotten_are_not_handed_out_under_its_number(
    run: ServedRun, redis_url: str
) -> None:
    server = served(run)
    server.restore()
    snapshots = run.run.snapshots(server.store)
    assert snapshots.keep_newest() == 4
    forget_updates(run, after_version=2)
    redis_client(redis_url).flushall()
    run.bring(2, noise(33, WEIGHTS))
    server.restore()
    server.run_once()
    assert snapshots.keep_newest() == 6
    kept, _ = read_weights(run.folder.snapshot(6), WEIGHTS)
    assert kept.tobytes() == server.store.read()[1].tobytes()


def forget_updates(run: ServedRun, after_version: int) -> None:
    """An older copy of the journal is put back."""
    with closing(sqlite3.connect(run.folder.journal_file)) as connection, connection:
        condition = "kind = 'store_restored' OR json_extract(fields, '$.version') > ?"
        connection.execute(f"DELETE FROM events WHERE {condition}", (after_version,))


def zeroed(path: Path, at: int = 2048) -> None:
    """The disk lost a sector."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(512))


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(Path.unlink, ": put a copy of it back"), (zeroed, "its weights are not those that were folded")],
)
def test_an_upload_that_is_needed_and_gone_or_damaged_is_named(
    run: ServedRun, damage: Callable[[Path], None], words: str
) -> None:
    (kept,) = run.folder.kept_uploads.glob("v000002_*.h5")
    damage(kept)
    with pytest.raises(StoreError, match=f"version 2 needs an upload in .*{words}"):
        served(run).restore()


@pytest.mark.parametrize("damage", [cut_short, zeroed])
def test_a_newer_snapshot_saves_folding_unless_it_is_damaged(run: ServedRun, damage: Callable[[Path], None]) -> None:
    server = served(run)
    server.restore()
    version = run.run.snapshots(server.store).keep_newest(durable=True)
    run.run.journal().append(EpochClosed(1, version))
    server.store.drop()
    assert server.restore() == 0
    server.store.drop()
    damage(run.folder.snapshot(version))
    assert server.restore() == 3, "from version 0"
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()


@pytest.mark.parametrize("commit", range(1, 5))
@pytest.mark.parametrize("keeps_uploads", [True, False])
def test_a_bit_of_a_folders_log_is_no_end_of_the_run(tmp_path: Path, keeps_uploads: bool, commit: int) -> None:
    """Where no upload is kept, the store has all that there is of the weights, and the journal the records."""
    run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), "")
    if not keeps_uploads:
        run.folder.kept_uploads.rmdir()
    uploads = [noise(number + 1, WEIGHTS) for number in range(6)]
    for number in range(5):
        run.bring(number, uploads[number])
        served(run).run_once()
    made = run.store.read()[1]
    (log,) = run.folder.store.rglob("commits.log")
    lines = log.read_bytes().splitlines(keepends=True)
    lines[commit] = lines[commit].replace(b'"version": ', b'"wersion": ')
    log.write_bytes(b"".join(lines))
    server = served(run)
    server.catch_up()
    assert (server.store.version(), server.store.read()[1].tobytes()) == (5, made.tobytes())
    for number in range(6):
        run.bring(number, uploads[number], attempt=1)
    server.run_once()
    assert server.store.version() == 6, "all but one have their record again"
    assert len(applied(run.folder.path)) == 6


@pytest.mark.parametrize("damaged", [2, 4])
def test_a_log_with_an_update_that_has_no_row_keeps_it_unless_its_own_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    """The server that made version 4 was killed before the row; its upload comes again, and counts once."""
    run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), "")
    for number in range(4):
        run.bring(number, noise(number + 1, WEIGHTS))
        if number < 3:
            served(run).run_once()
    with monkeypatch.context() as patch:
        patch.setattr("vcdl.loop.assimilator.keep_upload", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            served(run).run_once()
    (upload,) = run.folder.uploads.iterdir()
    brought = upload.read_bytes()
    upload.unlink()  # with the lock of the killed server, which lives in this process
    run.bring(4, noise(5, WEIGHTS))
    served(run).run_once()
    upload.write_bytes(brought)
    log = next(run.folder.store.rglob("commits.log"))
    lines = log.read_bytes().splitlines(keepends=True)
    lines[damaged] = lines[damaged].replace(b'"version": ', b'"wersion": ')
    log.write_bytes(b"".join(lines))
    server = served(run)
    server.catch_up()
    is_kept = damaged != 4
    assert server.store.version() == (5 if is_kept else 6)
    server.run_once()
    assert server.store.version() == (5 if is_kept else 7)
    assert server.store.read()[1].tobytes() == run.replayed().tobytes()
    assert len(applied(run.folder.path)) == 5


def test_a_damaged_upload_is_made_up_for_by_a_later_version_whose_rows_are_all_there(run: ServedRun) -> None:
    """A snapshot that clients begin with is a base, though it ends no epoch."""
    server = served(run)
    server.restore()
    assert run.run.snapshots(server.store).keep_newest() == 4
    (kept,) = run.folder.kept_uploads.glob("v000002_*.h5")
    zeroed(kept)
    made = server.store.read()[1]
    server.store.drop()
    assert server.restore() == 0
    assert server.store.read()[1].tobytes() == made.tobytes()


def test_updates_that_may_count_twice_are_counted(run: ServedRun) -> None:
    """Nothing else is left than a snapshot with an update that has no row."""
    server = served(run)
    server.restore()
    run.run.snapshots(server.store).keep(5, noise(99, WEIGHTS))
    server.store.drop()
    for kept in run.folder.kept_uploads.iterdir():
        kept.unlink()
    server.restore()
    (restored,) = [row.event for row in run.run.journal().newest(StoreRestored.kind, 1)]
    assert restored == StoreRestored(version=6, folded_again=0, twice=1, lost=0)
