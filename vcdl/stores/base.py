"""The store's contract: one vector with a version, and a record of every subtask folded into it.

A backend supplies a transaction; what happens inside one is written here, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vcdl.weights import Vector


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
    """(W, staleness) → weight given; changes W in place."""


class Transaction(ABC):
    """One read and one write of the vector, alone or not at all."""

    version: int
    vector: Vector
    """A working copy: changed in place, visible to nobody before `commit`."""

    @abstractmethod
    def find(self, subtask: str) -> Applied | None:
        """What was recorded for the subtask, by this or by any earlier transaction."""

    @abstractmethod
    def commit(self, version: int, applied: Sequence[Applied]) -> None:
        """Make vector, version and records visible together."""


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

    def fold(self, folds: Sequence[Fold]) -> list[Applied]:
        """Fold uploads in, in order, between one read and one write; returns what is recorded for each.

        A subtask that was folded in before, from this upload or from another attempt, is not applied again: its first record
        is returned, and its `workunit` says whose it was. Raises StoreError, and then nothing was changed.
        """
        with self._transaction() as transaction:
            version = transaction.version
            fresh: dict[str, Applied] = {}
            results: list[Applied] = []
            for fold in folds:
                known = fresh.get(fold.subtask) or transaction.find(fold.subtask)
                if known is None:
                    staleness = version - fold.base_version
                    weight = fold.apply(transaction.vector, staleness)
                    version += 1
                    known = fresh[fold.subtask] = Applied(fold.subtask, fold.workunit, version, staleness, weight)
                results.append(known)
            if fresh:
                transaction.commit(version, tuple(fresh.values()))
            return results
