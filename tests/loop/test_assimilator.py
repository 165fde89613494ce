"""The parameter server's loop, killed between any two of its steps."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.examples import some
from tests.memory_grid import Fuse, Killed
from tests.plans import a_plan
from tests.server import RULE, SIZE, Disk, Server
from vcdl.errors import FileUnavailable
from vcdl.errors.refusal import Refusal
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    Event,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    WeightsPublished,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.rules.base import Rule
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import subtask_name

PLAN = a_plan(shards=12, validate_every=3)
NEEDS_BASE = TrimmedMean(server_learning_rate=0.5, buffer=1, trim=0)


def w(shard: int, attempt: int = 0, base: int = 0) -> str:
    return f"j_{subtask_name(1, shard)}_a{attempt}_v{base:06d}"


def disk_of(path: Path, validate_every: int = 3) -> Disk:
    return Disk.new(path, replace(PLAN, validate_every=validate_every))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return disk_of(tmp_path)


@pytest.fixture
def server(disk: Disk) -> Iterator[Server]:
    server = Server(disk)
    yield server
    server.close()


def events(server: Server) -> list[Event]:
    return [recorded.event for recorded in server.journal.read()]


def test_an_upload_becomes_a_version_a_row_and_nothing_that_waits(server: Server) -> None:
    server.grid.bring(w(0))
    assert server.assimilator.run_once() == 1
    size_bytes = (server.disk.folder.uploads / f"{w(0)}.h5").stat().st_size
    (row,) = events(server)
    assert isinstance(row, UpdateApplied)
    assert (row.workunit, row.version, row.base_version, row.staleness) == (w(0), 1, 0, 0)
    assert (row.samples, row.fraction, row.train_s, row.loss) == (10, 1.0, 1.5, 0.5)
    assert row.weight == pytest.approx(0.1)
    assert row.bytes_up == size_bytes
    assert server.grid.outcomes == {}
    server.check_store_and_journal_agree()


@pytest.mark.parametrize("file", ["upload", "base"])
def test_an_upload_that_this_machine_cannot_read_is_waited_for(tmp_path: Path, file: str) -> None:
    """Nobody is refused for our disk, rights or limits."""
    server = Server(Disk.new(tmp_path, replace(PLAN, validate_every=EVERY_EPOCH), NEEDS_BASE))
    folder = server.disk.folder
    server.grid.bring(w(0))
    path = folder.uploads / f"{w(0)}.h5" if file == "upload" else folder.snapshot(0)
    whole = path.rename(tmp_path / "elsewhere")
    path.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    for _ in range(2):
        with pytest.raises(FileUnavailable, match="this machine cannot read it"):
            server.assimilator.run_once()
    assert events(server) == []
    whole.rename(path)
    server.assimilator.run_once()
    assert [type(event) for event in events(server)] == [UpdateApplied]
    server.close()


def test_many_uploads_at_once_are_folded_in_batches_that_end_where_a_version_is_to_be_evaluated(tmp_path: Path) -> None:
    for every, batches in ((EVERY_EPOCH, [8, 4]), (3, [3, 3, 2, 1, 3]), (1, [1] * 12), (10, [8, 2, 2])):
        disk = disk_of(tmp_path / str(every), every)
        for shard in range(12):
            disk.grid.bring(w(shard))
        server = Server(disk)
        assert server.assimilator.run_once() == 12
        server.check_store_and_journal_agree()
        log = (disk.folder.store / "commits.log").read_text().splitlines()[1:]
        assert [line.count("subtask") for line in log] == batches
        kept = sorted(path.name for path in disk.folder.snapshots.iterdir())
        versions = [] if every == EVERY_EPOCH else range(every, 13, every)
        assert kept == [disk.folder.snapshot(version).name for version in (0, *versions)]
        for version in versions:
            vector, _ = read_weights(disk.folder.snapshot(version), SIZE)
            assert vector.tobytes() == server.history()[version].tobytes()
        server.close()


# -- killed


def load(disk: Disk) -> None:
    """Eleven subtasks come back, one of them in two attempts; one is refused, one given up."""
    for shard in range(8):
        disk.grid.bring(w(shard))
    disk.grid.bring(w(3, attempt=1))
    disk.grid.bring(w(8), np.full(SIZE, np.nan, np.float32))
    disk.grid.give_up(w(9))
    disk.grid.bring(w(10))


def check_all_came_to_its_end(disk: Disk) -> None:
    server = Server(disk)
    assert disk.grid.outcomes == {}
    server.check_store_and_journal_agree()
    server.snapshots.ensure(9)  # the newest one: the work generator asks for it when it is to be evaluated
    happened = events(server)
    applied = [event.workunit for event in happened if isinstance(event, UpdateApplied)]
    assert sorted(applied) == sorted(w(shard) for shard in (*range(8), 10))
    (refused,) = [event for event in happened if isinstance(event, UpdateRefused)]
    assert (refused.workunit, refused.refusal) == (w(8), Refusal.NOT_FINITE.value)
    (superseded,) = [event for event in happened if isinstance(event, UpdateSuperseded)]
    assert superseded.workunit == w(3, attempt=1)
    assert refused.bytes_up == superseded.bytes_up == (disk.folder.uploads / f"{w(0)}.h5").stat().st_size
    assert [event.workunit for event in happened if isinstance(event, WorkunitFailed)] == [w(9)]
    for version in (3, 6, 9):
        vector, _ = read_weights(disk.folder.snapshot(version), SIZE)
        assert vector.tobytes() == server.history()[version].tobytes()
    server.close()


def live(disk: Disk, kill_at: int | None) -> int | None:
    """One life of the server; returns its steps, None when it was killed."""
    server = Server(disk, kill_at)
    try:
        server.start()
        server.assimilator.run_once()
        return server.fuse.steps
    except Killed:
        return None
    finally:
        server.close()


def test_killed_once_between_any_two_steps_each_subtask_still_counts_once(tmp_path: Path) -> None:
    undisturbed = disk_of(tmp_path / "undisturbed")
    load(undisturbed)
    steps = live(undisturbed, None)
    assert steps is not None
    assert steps > 50
    check_all_came_to_its_end(undisturbed)
    for kill_at in some(range(steps)):
        disk = disk_of(tmp_path / str(kill_at))
        load(disk)
        assert live(disk, kill_at) is None
        assert live(disk, None)
        check_all_came_to_its_end(disk)


def test_an_upload_whose_base_is_not_kept_any_more_is_refused_when_the_rule_needs_it(tmp_path: Path) -> None:
    """It came after its subtask was given up: another attempt is out, and begins from weights that are kept."""
    rules: list[tuple[Rule, bool]] = [(NEEDS_BASE, True), (RULE, False)]
    for rule, refused in rules:
        server = Server(Disk.new(tmp_path / type(rule).__name__, replace(PLAN, validate_every=EVERY_EPOCH), rule))
        server.disk.folder.snapshot(0).unlink()
        server.grid.bring(w(0))
        server.assimilator.run_once()
        (row,) = events(server)
        if refused:
            assert isinstance(row, UpdateRefused)
            assert row.refusal == Refusal.WRONG_BASE
            assert row.detail.startswith("the weights that it started from are not kept any more: params_v000000.h5")
        assert server.store.version() == (0 if refused else 1)
        assert server.grid.outcomes == {}
        server.close()


def test_an_upload_that_began_with_newer_weights_than_its_workunits_counts_from_those(tmp_path: Path) -> None:
    server = Server(Disk.new(tmp_path, replace(PLAN, validate_every=1), NEEDS_BASE))
    for shard in (5, 2):
        server.grid.bring(w(shard))
        server.assimilator.run_once()
    server.journal.append(WeightsPublished(1))
    server.grid.bring(w(9), base_version=1)
    server.assimilator.run_once()
    *_, row = events(server)
    assert isinstance(row, UpdateApplied)
    assert (row.workunit, row.base_version, row.staleness) == (w(9), 1, 1)
    server.check_store_and_journal_agree()
    server.close()


@pytest.mark.parametrize("claimed", [2, 0, 7])
def test_weights_that_were_not_offered_or_older_ones_are_no_base(tmp_path: Path, claimed: int) -> None:
    """2 was never published, 0 is older than the workunit's, 7 was published and is not kept any more."""
    server = Server(Disk.new(tmp_path, replace(PLAN, validate_every=1)))
    for shard in (5, 2):
        server.grid.bring(w(shard))
        server.assimilator.run_once()
    server.journal.append(WeightsPublished(0), WeightsPublished(7))
    server.grid.bring(w(9, base=1), base_version=claimed)
    server.assimilator.run_once()
    *_, row = events(server)
    assert isinstance(row, UpdateRefused)
    assert row.refusal == Refusal.WRONG_BASE
    server.close()


def test_another_attempt_is_recorded_with_the_base_that_the_store_knows(disk: Disk) -> None:
    """Its server died between the store and the row; it had begun with newer weights than its workunit's."""
    server = Server(disk)
    server.grid.bring(w(5))
    server.assimilator.run_once()
    server.journal.append(WeightsPublished(1))
    server.snapshots.keep_newest()
    server.grid.bring(w(6))
    server.assimilator.run_once()
    server.grid.bring(w(9), base_version=1)
    server.journal.fuse = Fuse(0)
    with pytest.raises(Killed):
        server.assimilator.run_once()
    server.journal.fuse = Fuse()
    server.grid.outcomes.clear()
    server.grid.bring(w(9, attempt=1))
    server.assimilator.run_once()
    row = events(server)[-2]
    assert isinstance(row, UpdateApplied)
    assert (row.workunit, row.base_version, row.version) == (w(9), 1, 3)
    server.close()


@pytest.mark.parametrize("counts", [False, True])
def test_a_kept_file_of_a_fold_that_is_forgotten_is_replaced_and_one_that_counts_is_left(
    server: Server, counts: bool
) -> None:
    folder = server.disk.folder
    folder.kept_uploads.mkdir()
    kept, upload = folder.kept_upload(1, w(0)), folder.uploads / f"{w(0)}.h5"
    server.grid.bring(w(0))
    if counts:
        server.journal.fuse = Fuse(0)
        with pytest.raises(Killed):
            server.assimilator.run_once()
        server.journal.fuse = Fuse()
        kept.unlink()
    kept.write_bytes(b"of a store that came back older, or a copy on another disk")
    server.assimilator.run_once()
    assert kept.exists()
    assert (kept.read_bytes() == upload.read_bytes()) is not counts


# -- what headers claim


def claims(server: Server) -> list[tuple[float | None, float | None]]:
    return [(row.train_s, row.loss) for row in events(server) if isinstance(row, UpdateApplied)]


def test_claims_that_are_not_possible_are_left_out_and_the_upload_counts(server: Server) -> None:
    now_s = time.time()
    for shard, age_s in enumerate((60, 60, 1)):
        server.journal.append(WorkunitCreated(w(shard)), time_s=now_s - age_s)
    server.grid.bring(w(0))
    server.grid.bring(w(1), train_s=90.0, loss=-1e30)
    server.grid.bring(w(2), train_s=30.0)
    server.assimilator.run_once()
    assert claims(server) == [(1.5, 0.5), (None, None), (None, 0.5)]
    assert server.store.version() == 3
    server.check_store_and_journal_agree()
