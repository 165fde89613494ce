"""Servers on one folder take turns: whatever order they come in, and whatever becomes of them, the weights are a
replay."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from vcdl.errors.refusal import Refusal
from vcdl.rules.base import Update
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.stores import Applied, Boundary, Change, FileStore, Fold, Unfit
from vcdl.stores.change import FOLD_BLOCK
from vcdl.testing.folds import FoldedUpload, fold, replayed, subtask, weights, workunit
from vcdl.wire.layout import Vector

SIZE = 2 * FOLD_BLOCK + 5
"""Weights: three blocks."""
TIMEOUT_S = 30
SERVERS = 4
SUBTASKS = 12


def stays(event: Event) -> bool:
    """Whether nothing has set it after a while in which much could have happened."""
    return not event.wait(0.2)


def has(folder: Path, *numbers: int) -> bool:
    version, vector = FileStore(folder, SIZE).read()
    return version == len(numbers) and vector.tobytes() == replayed(*numbers, size=SIZE).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FileStore(tmp_path, SIZE).create(weights(0, SIZE))
    return tmp_path


@dataclass
class Held(Change):
    """An upload that stops in its second block until it is released."""

    change: Change
    stopped: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)

    def apply(self, w: Vector, begin: int) -> float:
        if begin == FOLD_BLOCK:
            self.stopped.set()
            assert self.released.wait(TIMEOUT_S)
        return self.change.apply(w, begin)

    @property
    def refused(self) -> object:  # type: ignore[override]
        return self.change.refused


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as threads:
        yield threads


@pytest.mark.parametrize("refusal", [None, Refusal.UNREADABLE])
def test_while_one_folds_servers_and_readers_wait_and_then_see_what_it_made(
    folder: Path, threads: ThreadPoolExecutor, refusal: Refusal | None
) -> None:
    held, over = Held(FoldedUpload(weights(1, SIZE), 0, refusal)), Event()
    first = threads.submit(FileStore(folder, SIZE).fold, [Fold(subtask(0), workunit(0), 0, lambda _: held)])
    assert held.stopped.wait(TIMEOUT_S)
    second = threads.submit(FileStore(folder, SIZE).fold, [fold(1, size=SIZE)])
    reader = threads.submit(FileStore(folder, SIZE).read)
    for waiting in (second, reader):
        waiting.add_done_callback(lambda _: over.set())
    assert stays(over), "nobody reads or writes half an update"
    held.released.set()
    if refusal is None:
        assert first.result(TIMEOUT_S)[0].version == 1
    else:
        with pytest.raises(Unfit):
            first.result(TIMEOUT_S)
    (record,) = second.result(TIMEOUT_S)
    made = [0, 1] if refusal is None else [1]
    assert (record.version, record.staleness) == (len(made), len(made) - 1)
    version, vector = reader.result(TIMEOUT_S)
    assert vector.tobytes() == replayed(*made[:version], size=SIZE).tobytes()
    assert has(folder, *made)


def test_a_server_waits_for_a_reader(folder: Path, threads: ThreadPoolExecutor) -> None:
    kept, released, over = Event(), Event(), Event()

    def keep(version: int, w: Vector) -> None:
        kept.set()
        assert released.wait(TIMEOUT_S)
        assert w.tobytes() == weights(0, SIZE).tobytes()

    boundary = Boundary(2, keep, lambda version: version != 0)
    first = threads.submit(FileStore(folder, SIZE).fold, [fold(0, size=SIZE)], boundary)
    assert kept.wait(TIMEOUT_S)
    second = threads.submit(FileStore(folder, SIZE).fold, [fold(1, size=SIZE)])
    second.add_done_callback(lambda _: over.set())
    assert stays(over), "a version that must be kept is kept before anybody continues"
    released.set()
    assert [first.result(TIMEOUT_S)[0].version, second.result(TIMEOUT_S)[0].version] == [1, 2]
    assert has(folder, 0, 1)


# -- any interleaving


class Killed(BaseException):
    """The server ends here."""


@dataclass(frozen=True)
class Step:
    """The next step of one server. Transactions exclude each other, so an interleaving is a sequence of steps."""

    server: int
    subtasks: tuple[int, ...]
    attempt: int
    ends: str
    """`commits`, `is refused`, `is killed` in the middle of its blocks, or `tears` its line of the log."""


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, SERVERS - 1),
        st.lists(st.integers(0, SUBTASKS - 1), min_size=1, max_size=3).map(tuple),
        st.integers(0, 1),
        st.sampled_from(["commits", "commits", "commits", "is refused", "is killed", "tears"]),
    ),
    min_size=2,
    max_size=15,
)


@cache
def upload(number: int) -> Vector:
    """As `fold` brings it; −1: version 0."""
    return weights(number + 1, SIZE)


@dataclass
class KilledHalfway(Change):
    change: Change

    def apply(self, w: Vector, begin: int) -> float:
        if begin == FOLD_BLOCK:
            raise Killed
        return self.change.apply(w, begin)


def as_fold(number: int, step: Step) -> Fold:
    def begin(staleness: int) -> Change:
        change = FoldedUpload(upload(number), staleness, Refusal.UNREADABLE if step.ends == "is refused" else None)
        return KilledHalfway(change) if step.ends == "is killed" else change

    return Fold(subtask(number), workunit(number, step.attempt), 0, begin)


@dataclass
class Model:
    """The expected content of the store."""

    order: list[int] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)

    def take(self, step: Step) -> bool:
        """Whether the step has anything new; then it is folded in, unless it fails."""
        fresh = [number for number in dict.fromkeys(step.subtasks) if number not in self.attempts]
        if fresh and step.ends == "commits":
            self.order += fresh
            self.attempts |= dict.fromkeys(fresh, step.attempt)
        return bool(fresh)

    def vector(self) -> Vector:
        """Version 0 with all of them folded in, one at a time."""
        vector = upload(-1).copy()
        for number in self.order:
            VcAsgd(alpha=0.9).apply(vector, Update(upload(number), 1, 0, 10, 1.0))
        return vector

    def record(self, number: int) -> Applied:
        version = self.order.index(number) + 1
        return Applied(subtask(number), workunit(number, self.attempts[number]), version, version - 1, 0.1)


@pytest.mark.slow
@given(steps=STEPS)
@examples(40)
def test_any_interleaving_of_four_servers_is_a_replay_of_what_was_committed(steps: list[Step]) -> None:
    """Each server has a view of its own, as old as its last transaction; a killed server is started again."""
    folder = Path(tempfile.mkdtemp())
    try:
        stores = [FileStore(folder, SIZE) for _ in range(SERVERS)]
        stores[0].create(upload(-1))
        model = Model()
        for step in steps:
            folds, is_fresh = [as_fold(number, step) for number in step.subtasks], model.take(step)
            if not is_fresh or step.ends == "commits":
                expected = [model.record(number) for number in step.subtasks]
                records = stores[step.server].fold(folds)
                assert [record.weight for record in records] == pytest.approx([0.1] * len(records))
                assert [(r.subtask, r.workunit, r.version, r.staleness) for r in records] == [
                    (r.subtask, r.workunit, r.version, r.staleness) for r in expected
                ]
            elif step.ends == "is refused":
                with pytest.raises(Unfit):
                    stores[step.server].fold(folds)
            elif step.ends == "is killed":
                with pytest.raises(Killed):
                    stores[step.server].fold(folds)
                stores[step.server] = FileStore(folder, SIZE)
            else:
                FileStore(folder, SIZE).fold(folds)
                *whole, last = (folder / "commits.log").read_bytes().splitlines(keepends=True)
                (folder / "commits.log").write_bytes(b"".join(whole) + last[: len(last) // 2])
                stores[step.server] = FileStore(folder, SIZE)
        for store in stores:
            version, vector = store.read()
            assert version == len(model.order)
            assert vector.tobytes() == model.vector().tobytes()
    finally:
        shutil.rmtree(folder)
