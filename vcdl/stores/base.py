"""The interface of a weight store: one vector with a version, and a record of every subtask that was folded into it.

A backend provides the transaction. The steps inside a transaction are written here, once for all backends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from vcdl.errors import StoreLost, StoreUnavailable
from vcdl.errors.refusal import Refused
from vcdl.rules.state import RuleState
from vcdl.stores.change import Change, WorkingVector, fold_changes
from vcdl.wire.weights import Vector

_TRIES = 100
"""Attempts at a fold that is overtaken by other servers each time. Servers take turns, so a second attempt is rare, and
a hundredth means that something is wrong."""


@dataclass(frozen=True)
class Applied:
    """The record of a folded subtask, kept in the same transaction as the weights.

    If the journal lacks the update's row, it is written from this record when the result is delivered again.
    """

    subtask: str
    workunit: str
    """The workunit whose upload was folded in: another attempt at the same subtask is not applied again."""
    version: int
    """The version that this update made."""
    staleness: int
    weight: float
    trust: float = 1.0
    """The factor on the upload's fraction by the trust in its host."""


RESTORED = "restored"
"""Replaces a subtask's name in the record of a restore. A store that was replaced by a copy from before the restore
lacks this record."""


def restored_record(version: int) -> Applied:
    """Return the record of a restore that made this version."""
    return Applied(RESTORED, RESTORED, version, 0, 0.0)


class Unfit(Exception):
    """Raised when uploads were refused while they were folded. Nothing was changed: fold again without them."""

    def __init__(self, refused: Mapping[str, Refused]) -> None:
        super().__init__(", ".join(f"{workunit}: {reason}" for workunit, reason in refused.items()))
        self.refused = refused
        """Workunit → its refusal, for all uploads refused in this fold."""


@dataclass(frozen=True)
class Fold:
    """One upload that waits to be folded."""

    subtask: str
    workunit: str
    base_version: int
    begin: Callable[[int], Change]
    """Opens the upload, given its staleness. It is called again, for a newer W, if another server committed first."""
    trust: float = 1.0
    """The factor on the upload's fraction by trust (Applied.trust)."""


@dataclass(frozen=True)
class Boundary:
    """The versions that must be kept as snapshots: the multiples of `every`.

    A fold ends when it has made one of them.
    """

    every: int
    keep: Callable[[int, Vector], None]
    """Called with version and W to keep a snapshot, before W can change. On an eventual store a second call may correct
    the first snapshot."""
    kept: Callable[[int], bool]
    """Returns whether a version is kept, because a server that is killed between its commit and `keep` skips one."""


@dataclass(frozen=True)
class Expected:
    """The journal's newest record, which the store must have too; otherwise it is an older copy or has other updates.

    A store replaced by an older copy may use a version's number again, but never for the same subtask.
    """

    version: int = 0
    """The newest version in the journal."""
    subtask: str = ""
    """The subtask of the newest update, RESTORED if the store was restored since, or "" if there is neither."""
    record_version: int = 0
    """The version of that record."""


def _nothing() -> Expected:
    return Expected()


def _never(_: int) -> bool:
    return False


class Conflict(Exception):
    """Raised when another server committed between this transaction's read and its write.

    Nothing was changed: retry.
    """


class Transaction(ABC):
    """One read and one write of the store's vector, as a whole or not at all."""

    version: int

    @property
    @abstractmethod
    def working(self) -> WorkingVector:
        """The whole vector, to be changed in place; no other process sees the changes before `commit`.

        Raises:
            Conflict, StoreError: The vector cannot be read.
        """

    @abstractmethod
    def weights(self) -> Vector:
        """W, shape (n,), for reading: the W of `version` before `working` is changed, and the new W after `commit`."""

    @abstractmethod
    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of earlier transactions by subtask; subtasks without a record are omitted."""

    @abstractmethod
    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        """Make vector, version and records visible together.

        Returns:
            The version that was made: `version`, unless the store is eventual and others have written in the meantime.
                Then the records are stored with their versions shifted by the difference.

        Raises:
            Conflict: Another server committed first.
            StoreError: The store cannot be written.
        """


class WeightStore(ABC):
    """The versioned weights of one job, with the numbers that its rule keeps for them."""

    state: RuleState
    """The size of the rule's own numbers."""
    overwrites: bool = False
    """Whether an update may be overwritten by a server that had read before it: eventual stores only."""
    expected: Callable[[], Expected] = staticmethod(_nothing)
    """Returns the journal's newest record, which the store must have. It is called before each read, which raises
    StoreLost if the record is missing."""
    is_taken: Callable[[int], bool] = staticmethod(_never)
    """Returns whether a version above the store's was seen before; if so, the store was replaced by an older copy."""

    @abstractmethod
    def create(self, vector: Vector) -> None:
        """Store version 0, W of shape (n,), unless the store already exists."""

    def check_service(self) -> None:
        """Check that the service can keep weights safely, whatever it stores now.

        Raises:
            StoreError: It cannot, or cannot be reached.
        """
        return

    @abstractmethod
    def version(self) -> int:
        """Return the newest version.

        Raises:
            StoreLost, StoreError: The store lost the weights, or cannot be used. This applies to all methods below.
        """

    @abstractmethod
    def read(self) -> tuple[int, Vector]:
        """Return the newest version and a copy of its W, shape (n,)."""

    @abstractmethod
    def read_whole(self) -> tuple[int, Vector]:
        """Return the newest version and a copy of the store's whole vector (vcdl.rules.state)."""

    def regain(self, records: Sequence[Applied], are_all: Callable[[int, Collection[Applied]], bool]) -> bool:
        """Recover the store's lost records, if its weights are undamaged.

        Args:
            records: The records known from the journal.
            are_all: Returns whether a version consists of exactly these records.

        Returns:
            Whether it succeeded; if not, call `restore`.
        """
        return False

    @abstractmethod
    def records(self, after_version: int) -> list[Applied]:
        """Return the records of updates with a later version than this one, in any order."""

    @abstractmethod
    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Begin a transaction; without a commit, nothing is changed at its end."""

    @abstractmethod
    def drop(self) -> None:
        """Remove everything of the job, which has ended and whose weights are kept elsewhere.

        Does nothing if the store has nothing of the job.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def lost_updates(self) -> int:
        """Return how many updates the version last read or made lacks because other servers overwrote them."""
        return 0

    @abstractmethod
    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        """Replace the store's content by a whole vector: after StoreLost, or when the job rolls back.

        Updates that are later than the vector are applied again by the servers that have their uploads.

        Args:
            version: The version of the vector.
            vector: All numbers of the store.
            applied: The records of all updates up to it, and of no others.
            lost: How many of these updates are missing in the vector.

        Returns:
            False if another server was first; its vector is then kept.

        Raises:
            StoreError: The store cannot be written.
        """

    def fold(self, folds: Sequence[Fold], boundary: Boundary | None = None) -> list[Applied]:
        """Apply uploads in order in one transaction, and return their records.

        A subtask that was applied before, from this upload or from another attempt, is not applied again. Its first
        record is returned, whose `workunit` says which upload that was; the upload is not read, and therefore never
        refused.

        Args:
            folds: The uploads.
            boundary: The versions to keep; stop once one was made. The caller passes the remaining uploads again.

        Raises:
            Unfit: Some uploads are refused.
            StoreUnavailable: The same call may work later. It also settles whether a commit on a cut connection took
                effect.
            StoreLost: The store lost its weights or is older than the journal.
            StoreError: The store cannot be used.
        """
        for _ in range(_TRIES):
            try:
                with self._transaction() as transaction:
                    return self._fold(transaction, folds, boundary)
            # Nothing was changed. The next transaction reads what the other server wrote, and opens each upload again,
            # because its staleness has changed.
            except Conflict:
                continue
        raise StoreUnavailable(
            f"other parameter servers changed the weights {_TRIES} times in a row: run fewer of them"
        )

    def _fold(self, transaction: Transaction, folds: Sequence[Fold], boundary: Boundary | None) -> list[Applied]:
        version = transaction.version
        # Inside the transaction: a record that another server writes after this read makes the commit fail.
        known = dict(transaction.find([fold.subtask for fold in folds]))
        results: list[str] = []
        fresh: list[_Fresh] = []
        # A batch that was applied before changes nothing, so no snapshot is needed for it.
        is_fresh = any(fold.subtask not in known for fold in folds)
        # Another server may have made this version and been killed before it kept the snapshot.
        if is_fresh and boundary is not None and version % boundary.every == 0 and not boundary.kept(version):
            boundary.keep(version, transaction.weights())
        with ExitStack() as opened:
            for fold in folds:
                results.append(fold.subtask)
                if fold.subtask in known:
                    continue
                staleness = version - fold.base_version
                change = opened.enter_context(closing(fold.begin(staleness)))
                version += 1
                if self.is_taken(version):
                    raise StoreLost(f"version {version} of the weights existed before: they must be rebuilt")
                fresh.append(_Fresh(change, Applied(fold.subtask, fold.workunit, version, staleness, 0.0, fold.trust)))
                # Two attempts at one subtask may be in the same batch. The second must find the record of the first.
                known[fold.subtask] = fresh[-1].record
                # The version at a boundary must be kept before the next upload changes it. The caller passes the others
                # again.
                if boundary is not None and version % boundary.every == 0:
                    break
            if fresh:
                known |= {record.subtask: record for record in _apply(transaction.working, fresh, self.state)}
        if fresh:
            made = transaction.commit(version, [known[item.record.subtask] for item in fresh])
            for item in fresh:
                record = known[item.record.subtask]
                # An eventual store may have newer versions by now. Then all versions of this fold are shifted by the
                # same number.
                known[record.subtask] = replace(record, version=record.version + made - version)
            if boundary is not None and made % boundary.every == 0:
                boundary.keep(made, transaction.weights())
        return [known[subtask] for subtask in results]


def check_expected(
    expected: Expected, version: int, find: Callable[[Sequence[str]], Mapping[str, Applied]], where: str
) -> None:
    """Check a store's newest version and its records against the journal.

    Args:
        expected: The journal's newest record.
        version: The store's newest version.
        find: Returns the store's records of subtasks.
        where: The store, for the error's message.

    Raises:
        StoreLost: The store is older than the journal, or has other updates.
    """
    cure = "it was replaced by an older copy, or has not followed the journal yet; the weights must be rebuilt"
    # The journal was read before the store: a store may be ahead of it, never behind.
    if version < expected.version:
        raise StoreLost(f"{where} is at version {version} and the journal at {expected.version}: {cure}")
    if expected.subtask:
        record = find([expected.subtask]).get(expected.subtask)
        # After more folds, an older copy of the store may reach the same number, but with another subtask (decision
        # 029).
        if record is None or record.version != expected.record_version:
            raise StoreLost(f"{where} has another version {expected.record_version} than the journal: {cure}")


@dataclass(frozen=True)
class _Fresh:
    """An upload that is folded for the first time, with its record except for the weight."""

    change: Change
    record: Applied


def _apply(working: WorkingVector, fresh: Sequence[_Fresh], state: RuleState) -> list[Applied]:
    """Fold the uploads, and return their records with the weights that the rule gave.

    Raises:
        Unfit: Some uploads are refused.
    """
    weights = fold_changes([item.change for item in fresh], working, state)
    refused = {item.record.workunit: item.change.refused for item in fresh}
    if unfit := {workunit: reason for workunit, reason in refused.items() if reason is not None}:
        raise Unfit(unfit)
    return [replace(item.record, weight=weight) for item, weight in zip(fresh, weights, strict=True)]
