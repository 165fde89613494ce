"""The store's contract: one vector with a version, and a record of every subtask folded into it.

A backend supplies a transaction; what happens inside one is written here, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from vcdl.checks.refusal import Refused
from vcdl.errors import StoreError, StoreUnavailable
from vcdl.state import State
from vcdl.weights import Vector

BLOCK = 1 << 18
"""Numbers of the store's vector that are folded at a time, 1 MiB: they and an upload stay in the processor's cache, and what a call costs
does not count."""
_TRIES = 100
"""Of one fold that others keep overtaking. They take turns, so that a second try is rare and a third a stall."""


@dataclass(frozen=True)
class Applied:
    """What the store keeps of a subtask that was folded in, in the same transaction as the weights.

    From it a missing journal row can be written when the same result is delivered again.
    """

    subtask: str
    workunit: str
    """Whose upload it was: another attempt at the same subtask is not applied again."""
    version: int
    """That this update made."""
    staleness: int
    weight: float


class Change(ABC):
    """An upload while it is folded in, block by block: whatever its size, nothing but a block of it need be in memory."""

    @property
    def looks(self) -> bool:
        """Whether it must see all of the store's vector before it can be folded in; it is folded in alone then."""
        return False

    def look(self, w: Vector, begin: int) -> None:
        """See a block of W before anything is folded in. Blocks come in order."""
        return

    def has_looked(self, lengths: Vector) -> None:
        """After the last block that it looks at: take its place in `lengths`, of shape (s,) (vcdl.state), as they will be."""
        return

    @abstractmethod
    def apply(self, w: Vector, begin: int, out: Vector) -> float:
        """Fold into a block of W, the weights from number `begin` on, and write it to `out`, which may be `w`; returns the weight given.

        With a rule that keeps k vectors beside W, a block has the shape (1 + k, m), and W is its first row. Blocks come in order.
        """

    @property
    def refused(self) -> Refused | None:
        """After the last block: why the upload must not count, which shows only when all of it has been read."""
        return None

    def close(self) -> None:
        """Let go of its file."""
        return


class Unfit(Exception):
    """Uploads were refused while they were folded in: nothing was changed; fold again without them."""

    def __init__(self, refused: Mapping[str, Refused]) -> None:
        super().__init__(", ".join(f"{workunit}: {reason}" for workunit, reason in refused.items()))
        self.refused = refused
        """By workunit; all of this fold."""


@dataclass(frozen=True)
class Fold:
    """One upload that waits to be folded in."""

    subtask: str
    workunit: str
    base_version: int
    begin: Callable[[int], Change]
    """Its staleness → what it does to W. Called again, for a newer W, when another server was first."""


@dataclass(frozen=True)
class Boundary:
    """Versions that must be kept as they are: multiples of `every`; a fold ends when it has made one."""

    every: int
    keep: Callable[[int, Vector], None]
    """(version, W), called before anybody can change W; on some stores a rare second call corrects the first."""
    kept: Callable[[int], bool]
    """Whether a version is kept: a server that was killed between its commit and `keep` leaves one out."""


class Conflict(Exception):
    """Another server committed between this transaction's read and its write: nothing was changed, begin anew."""


class Writer(Protocol):
    """Where new values of a store's whole vector go, block by block. Its calls raise StoreError and Conflict."""

    def wait(self, end: int) -> None:
        """Return when the old values of the weights before `end` are there to be read: another server may be at work on them."""
        ...

    def room(self, size: int) -> Vector:
        """Memory for `size` new values."""
        ...

    def write(self, end: int, parts: Sequence[tuple[int, Vector]]) -> None:
        """New values, each from a number of the whole vector on, in memory that `room` gave last; the weights before `end` are new then."""
        ...


class Transaction(ABC):
    """One read and one write of the vector, alone or not at all."""

    version: int

    @property
    @abstractmethod
    def vector(self) -> Vector:
        """The store's whole vector, for reading only: as it was before anything is folded in, and as it was committed afterwards.

        Another server that is making this version is waited for. Raises Conflict when it did not.
        """

    @abstractmethod
    def buffers(self, version: int) -> tuple[Vector, Vector | Writer]:
        """To make `version`: the whole vector, and where its new values go, which may be the same memory. They are visible to nobody
        before `commit`.
        """

    @abstractmethod
    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """What earlier transactions recorded, by subtask; a subtask that is new is not in it."""

    @abstractmethod
    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        """Make vector, version and records visible together; raises Conflict or StoreError.

        Returns the version that was made: `version`, unless the store is eventual and others have written meanwhile. Then the
        records are kept with their versions moved by the difference.
        """


class WeightStore(ABC):
    """Versioned weights of one job, and what its rule keeps beside them."""

    state: State
    """How much that is."""
    overwrites: bool = False
    """Whether an update may be overwritten by a server that had read before it: eventual stores only."""

    @abstractmethod
    def create(self, vector: Vector) -> None:
        """Put version 0 there, W of shape (n,); a store that exists already is left as it is."""

    @abstractmethod
    def version(self) -> int:
        """The newest version."""

    @abstractmethod
    def read(self) -> tuple[int, Vector]:
        """The newest version and a copy of its W, shape (n,)."""

    @abstractmethod
    def read_whole(self) -> tuple[int, Vector]:
        """The newest version and a copy of the store's whole vector (vcdl.state)."""

    @abstractmethod
    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Begin a transaction; leaving it without a commit changes nothing."""

    @abstractmethod
    def drop(self) -> None:
        """Leave nothing of the job in the store: it is over and its weights are kept elsewhere. Again, when there is nothing."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def lost_updates(self) -> int:
        """How many updates are overwritten, and so missing, in the version that this object has read or made last."""
        return 0

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        """After StoreLost, put a whole vector back, with the records of all updates up to `version`, of which `lost` are missing in it.

        False when another server has done it first: then its snapshot stands. Updates later than the snapshot are folded again
        by whoever holds their uploads. Raises StoreError.
        """
        raise StoreError("this store keeps its weights on the local disk: put its folder back from a backup")

    def fold(self, folds: Sequence[Fold], boundary: Boundary | None = None) -> list[Applied]:
        """Fold uploads in, in order, between one read and one write; returns what is recorded for each, up to a `boundary`.

        A subtask that was folded in before, from this upload or from another attempt, is not applied again: its first record
        is returned, and its `workunit` says whose it was; it is not read either, and so never refused. Raises Unfit,
        StoreUnavailable when it is worth to wait and call again (what a
        cut connection left undecided is then found out), StoreLost, StoreError.
        """
        for _ in range(_TRIES):
            try:
                with self._transaction() as transaction:
                    return _fold(transaction, folds, boundary, self.state)
            except Conflict:
                continue
        raise StoreUnavailable(
            f"other parameter servers changed the weights {_TRIES} times in a row: run fewer of them"
        )


def fold_changes(
    changes: Sequence[Change],
    old: Vector,
    new: Vector | Writer,
    state: State,
) -> list[float]:
    """Fold changes into a store's whole vector, from `old` into `new`, which may be `old`; returns the weights given.

    One that looks is alone, and when it has looked and is refused, nothing is folded in.
    """
    lengths, weights = state.lengths_of(old).copy(), [0.0] * len(changes)
    for change in changes:
        if change.looks:
            for begin, block in _row_blocks(old, state):
                if not isinstance(new, np.ndarray):
                    new.wait(begin + block.shape[-1])
                change.look(block, begin)
            change.has_looked(lengths)
            if change.refused is not None:
                return weights
    for begin, block in _row_blocks(old, state):
        end = begin + block.shape[-1]
        if isinstance(new, np.ndarray):
            out = state.rows(new)[..., begin:end]
        else:
            new.wait(end)
            out = new.room(block.size).reshape(block.shape)
        for number, change in enumerate(changes):
            weights[number] = change.apply(block if number == 0 else out, begin, out)
        if not isinstance(new, np.ndarray):
            size = state.weights(old).size
            new.write(end, [(row * size + begin, rows) for row, rows in enumerate(out.reshape(1 + state.vectors, -1))])
    if isinstance(new, np.ndarray):
        np.copyto(state.lengths_of(new), lengths)
    elif state.lengths:
        out = new.room(state.lengths)
        np.copyto(out, lengths)
        new.write(state.weights(old).size, [(old.size - state.lengths, out)])
    return weights


def _row_blocks(whole: Vector, state: State) -> Iterator[tuple[int, Vector]]:
    """A whole vector in blocks as changes take them, in order: the number of the first weight, and the block.

    At least one block, which is empty when W is.
    """
    rows = state.rows(whole)
    step = max(1, BLOCK // (1 + state.vectors))
    for begin in range(0, max(1, rows.shape[-1]), step):
        yield begin, rows[..., begin : begin + step]


def _fold(transaction: Transaction, folds: Sequence[Fold], boundary: Boundary | None, state: State) -> list[Applied]:
    version = transaction.version
    known = dict(transaction.find([fold.subtask for fold in folds]))
    results: list[str] = []
    fresh: list[_Fresh] = []
    is_fresh = any(fold.subtask not in known for fold in folds)
    if is_fresh and boundary is not None and version % boundary.every == 0:
        whole = transaction.vector  # when it is there, the server that made it has kept it
        if not boundary.kept(version):
            boundary.keep(version, state.weights(whole))
    with ExitStack() as opened:
        for fold in folds:
            results.append(fold.subtask)
            if fold.subtask in known:
                continue
            staleness = version - fold.base_version
            change = opened.enter_context(closing(fold.begin(staleness)))
            version += 1
            fresh.append(_Fresh(change, Applied(fold.subtask, fold.workunit, version, staleness, 0.0)))
            known[fold.subtask] = fresh[-1].record
            if change.looks or (boundary is not None and version % boundary.every == 0):
                break
        known |= {record.subtask: record for record in _apply(transaction, version, fresh, state)}
    if fresh:
        made = transaction.commit(version, [known[item.record.subtask] for item in fresh])
        for item in fresh:
            record = known[item.record.subtask]
            known[record.subtask] = replace(record, version=record.version + made - version)
        if boundary is not None and made % boundary.every == 0:
            boundary.keep(made, state.weights(transaction.vector))
    return [known[subtask] for subtask in results]


@dataclass(frozen=True)
class _Fresh:
    """An upload that is folded in for the first time, and its record but for the weight."""

    change: Change
    record: Applied


def _apply(transaction: Transaction, version: int, fresh: Sequence[_Fresh], state: State) -> list[Applied]:
    """Fold all of them into each block before the next one is taken; returns their records. Raises Unfit."""
    weights = [0.0] * len(fresh)
    if fresh:
        old, new = transaction.buffers(version)
        weights = fold_changes([item.change for item in fresh], old, new, state)
    refused = {item.record.workunit: item.change.refused for item in fresh}
    if unfit := {workunit: reason for workunit, reason in refused.items() if reason is not None}:
        raise Unfit(unfit)
    return [replace(item.record, weight=weight) for item, weight in zip(fresh, weights, strict=True)]
