"""The store's contract: one vector with a version, and a record of every subtask folded into it.

A backend supplies a transaction; what happens inside one is written here, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vcdl.errors import StoreError, StoreUnavailable
from vcdl.weights import Vector

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


@dataclass(frozen=True)
class Fold:
    """One upload that waits to be folded in."""

    subtask: str
    workunit: str
    base_version: int
    apply: Callable[[Vector, int], float]
    """(W, staleness) → weight given; changes W in place. Called again, on the newer W, when another server was first."""


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


class Transaction(ABC):
    """One read and one write of the vector, alone or not at all."""

    version: int

    @property
    @abstractmethod
    def vector(self) -> Vector:
        """A working copy, read when it is first asked for: changed in place, visible to nobody before `commit`."""

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
    """Versioned weights of one job."""

    @abstractmethod
    def create(self, vector: Vector) -> None:
        """Put version 0 there; a store that exists already is left as it is."""

    @abstractmethod
    def version(self) -> int:
        """The newest version."""

    @abstractmethod
    def read(self) -> tuple[int, Vector]:
        """The newest version and a copy of its vector, shape (n,)."""

    @abstractmethod
    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Begin a transaction; leaving it without a commit changes nothing."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def lost_updates(self) -> int:
        """How many updates were folded in and then overwritten by a server that had read before them: eventual stores only."""
        return 0

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied]) -> bool:
        """After StoreLost, put a snapshot back, with the records of all updates up to `version`.

        False when another server has done it first: then its snapshot stands. Updates later than the snapshot are folded again
        by whoever holds their uploads. Raises StoreError.
        """
        raise StoreError("this store keeps its weights on the local disk: put its folder back from a backup")

    def fold(self, folds: Sequence[Fold], boundary: Boundary | None = None) -> list[Applied]:
        """Fold uploads in, in order, between one read and one write; returns what is recorded for each, up to a `boundary`.

        A subtask that was folded in before, from this upload or from another attempt, is not applied again: its first record
        is returned, and its `workunit` says whose it was. Raises StoreUnavailable when it is worth to wait and call again (what a
        cut connection left undecided is then found out), StoreLost, StoreError.
        """
        for _ in range(_TRIES):
            try:
                with self._transaction() as transaction:
                    return _fold(transaction, folds, boundary)
            except Conflict:
                continue
        raise StoreUnavailable(
            f"other parameter servers changed the weights {_TRIES} times in a row: run fewer of them"
        )


def _fold(transaction: Transaction, folds: Sequence[Fold], boundary: Boundary | None) -> list[Applied]:
    version = transaction.version
    known = dict(transaction.find([fold.subtask for fold in folds]))
    fresh: list[Applied] = []
    results: list[str] = []
    is_fresh = any(fold.subtask not in known for fold in folds)
    if is_fresh and boundary is not None and version % boundary.every == 0 and not boundary.kept(version):
        boundary.keep(version, transaction.vector)
    for fold in folds:
        results.append(fold.subtask)
        if fold.subtask not in known:
            staleness = version - fold.base_version
            weight = fold.apply(transaction.vector, staleness)
            version += 1
            known[fold.subtask] = Applied(fold.subtask, fold.workunit, version, staleness, weight)
            fresh.append(known[fold.subtask])
            if boundary is not None and version % boundary.every == 0:
                break
    if fresh:
        made = transaction.commit(version, fresh)
        known |= {record.subtask: replace(record, version=record.version + made - version) for record in fresh}
        if boundary is not None and made % boundary.every == 0:
            boundary.keep(made, transaction.vector)
    return [known[subtask] for subtask in results]
