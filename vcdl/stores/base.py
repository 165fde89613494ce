"""The store's contract: one vector with a version, and a record of every subtask that was folded into it.

A backend supplies the transaction. What happens inside a transaction is written here, once.
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
"""Attempts at a fold that other servers keep overtaking. Servers take turns, so a second attempt is rare, and a
hundredth means that something is wrong."""


@dataclass(frozen=True)
class Applied:
    """The record of a subtask that was folded in, kept in the same transaction as the weights.

    A missing row of the journal can be written from it when the same result is delivered again.
    """

    subtask: str
    workunit: str
    """The workunit whose upload was folded in: another attempt at the same subtask is not applied again."""
    version: int
    """The version that this update made."""
    staleness: int
    weight: float
    trust: float = 1.0
    """The factor on the upload's fraction, by what is known of its host."""


RESTORED = "restored"
"""In place of a subtask in the record that a restored store begins with: one that came back from before lacks it."""


def restored_record(version: int) -> Applied:
    """Return the record of restored weights with this version."""
    return Applied(RESTORED, RESTORED, version, 0, 0.0)


class Unfit(Exception):
    """Uploads were refused while they were folded in. Nothing was changed: fold again without them."""

    def __init__(self, refused: Mapping[str, Refused]) -> None:
        super().__init__(", ".join(f"{workunit}: {reason}" for workunit, reason in refused.items()))
        self.refused = refused
        """All refusals of this fold, by workunit."""


@dataclass(frozen=True)
class Fold:
    """One upload that waits to be folded in."""

    subtask: str
    workunit: str
    base_version: int
    begin: Callable[[int], Change]
    """Opens the upload, given its staleness. Called again, for a newer W, when another server committed first."""
    trust: float = 1.0
    """The factor of Applied."""


@dataclass(frozen=True)
class Boundary:
    """Versions that must be kept as they are: the multiples of `every`. A fold ends when it has made one."""

    every: int
    keep: Callable[[int, Vector], None]
    """(version, W) → a snapshot, before anybody can change W. On an eventual store a second call may correct the
    first."""
    kept: Callable[[int], bool]
    """Whether a version is kept: a server that is killed between its commit and `keep` leaves one out."""


@dataclass(frozen=True)
class Expected:
    """The journal's newest record, which a store must have: one without it came back older, or with other updates.

    A store that comes back older may give a version's number again; the subtask that made it comes once.
    """

    version: int = 0
    """The newest version."""
    subtask: str = ""
    """The subtask of the newest update, or RESTORED where the store was restored since; "": neither is there."""
    record_version: int = 0
    """The version of its record."""


def _nothing() -> Expected:
    return Expected()


def _never(_: int) -> bool:
    return False


class Conflict(Exception):
    """Another server committed between this transaction's read and its write. Nothing was changed: start over."""


class Transaction(ABC):
    """One read and one write of the store's vector, alone or not at all."""

    version: int

    @property
    @abstractmethod
    def working(self) -> WorkingVector:
        """The whole vector, to be changed in place; no other process sees the changes before `commit`.

        Raises Conflict, StoreError.
        """

    @abstractmethod
    def weights(self) -> Vector:
        """W, shape (n,), for reading: the W of `version` before `working` is changed, and the new W after `commit`."""

    @abstractmethod
    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of earlier transactions by subtask; subtasks without one are left out."""

    @abstractmethod
    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        """Make vector, version and records visible together; raises Conflict or StoreError.

        Returns the version that was made: `version`, unless the store is eventual and others have written meanwhile.
        Then the records are kept with their versions moved by the difference.
        """


class WeightStore(ABC):
    """The versioned weights of one job, and the numbers that its rule keeps with them."""

    state: RuleState
    """The size of what the rule keeps."""
    overwrites: bool = False
    """Whether an update may be overwritten by a server that had read before it: eventual stores only."""
    expected: Callable[[], Expected] = staticmethod(_nothing)
    """The update that the store must have; asked before each look at it, which raises StoreLost if it is missing."""
    is_taken: Callable[[int], bool] = staticmethod(_never)
    """Whether a version that is still to be made was seen before: then the store came back older."""

    @abstractmethod
    def create(self, vector: Vector) -> None:
        """Store version 0, W of shape (n,). A store that exists already stays as it is."""

    def check_service(self) -> None:
        """Check that the service is of a kind that keeps weights, whatever it has now. Raises StoreError."""
        return

    @abstractmethod
    def version(self) -> int:
        """Return the newest version. Raises StoreLost, StoreError, like all methods below."""

    @abstractmethod
    def read(self) -> tuple[int, Vector]:
        """Return the newest version and a copy of its W, shape (n,)."""

    @abstractmethod
    def read_whole(self) -> tuple[int, Vector]:
        """Return the newest version and a copy of the store's whole vector (vcdl.rules.state)."""

    def regain(self, records: Sequence[Applied], are_all: Callable[[int, Collection[Applied]], bool]) -> bool:
        """Recover what the store has lost, if only records are missing.

        Args:
            records: Those known from elsewhere.
            are_all: Tells whether a version consists of these records alone.

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
        """Begin a transaction; leaving it without a commit changes nothing."""

    @abstractmethod
    def drop(self) -> None:
        """Remove everything of the job, which is over and whose weights are kept elsewhere.

        Does nothing if nothing is there.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def lost_updates(self) -> int:
        """Return the number of overwritten, hence missing, updates in the version that was last read or made."""
        return 0

    @abstractmethod
    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        """Replace the store's content by a whole vector: after StoreLost, or when the job rolls back.

        Updates later than the snapshot are applied again by the servers that hold their uploads.

        Args:
            version: The version of the vector.
            vector: All numbers of the store.
            applied: The records of all updates up to it, and of no others.
            lost: How many of these updates are missing in the vector.

        Returns:
            False if another server was first; its snapshot then stands.

        Raises:
            StoreError: The store cannot be written.
        """

    def fold(self, folds: Sequence[Fold], boundary: Boundary | None = None) -> list[Applied]:
        """Fold uploads in, in order, between one read and one write; returns their records, up to a `boundary`.

        A subtask that was folded in before, from this upload or from another attempt, is not applied again. Its first
        record is returned, whose `workunit` says which upload that was; the upload is not read, and so never refused.

        Raises Unfit; StoreUnavailable, when the same call works later (it also finds out what a cut connection left
        undecided); StoreLost; StoreError.
        """
        for _ in range(_TRIES):
            try:
                with self._transaction() as transaction:
                    return self._fold(transaction, folds, boundary)
            # Nothing was changed. The next transaction reads what the other server wrote, and begins each upload anew,
            # as its staleness is another one.
            except Conflict:
                continue
        raise StoreUnavailable(
            f"other parameter servers changed the weights {_TRIES} times in a row: run fewer of them"
        )

    def _fold(self, transaction: Transaction, folds: Sequence[Fold], boundary: Boundary | None) -> list[Applied]:
        version = transaction.version
        # Inside the transaction: a record that another server writes after this look makes the commit fail.
        known = dict(transaction.find([fold.subtask for fold in folds]))
        results: list[str] = []
        fresh: list[_Fresh] = []
        # A batch that is known already changes nothing, so nothing has to be kept for it.
        is_fresh = any(fold.subtask not in known for fold in folds)
        # The server that made this version may have been killed before it kept it.
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
                    raise StoreLost(f"version {version} of the weights was there before: they must be rebuilt")
                fresh.append(_Fresh(change, Applied(fold.subtask, fold.workunit, version, staleness, 0.0, fold.trust)))
                # Two attempts at one subtask may be in the same batch. The second must find the first.
                known[fold.subtask] = fresh[-1].record
                # The version at a boundary has to be kept before the next upload changes it. The caller brings the
                # others again.
                if boundary is not None and version % boundary.every == 0:
                    break
            if fresh:
                known |= {record.subtask: record for record in _apply(transaction.working, fresh, self.state)}
        if fresh:
            made = transaction.commit(version, [known[item.record.subtask] for item in fresh])
            for item in fresh:
                record = known[item.record.subtask]
                # An eventual store may have moved on meanwhile. Then all versions of this fold are later by the same
                # number.
                known[record.subtask] = replace(record, version=record.version + made - version)
            if boundary is not None and made % boundary.every == 0:
                boundary.keep(made, transaction.weights())
        return [known[subtask] for subtask in results]


def check_expected(
    expected: Expected, version: int, find: Callable[[Sequence[str]], Mapping[str, Applied]], where: str
) -> None:
    """Check a store's newest version and its records against the journal. Raises StoreLost, which names `where`."""
    cure = "it came back older, or has not followed the journal yet; the weights must be rebuilt"
    # The journal was read before the store: a store may be ahead of it, never behind.
    if version < expected.version:
        raise StoreLost(f"{where} is at version {version} and the journal at {expected.version}: {cure}")
    if expected.subtask:
        record = find([expected.subtask]).get(expected.subtask)
        # A store that came back older and was folded into again may have the same number, but not the same subtask at
        # it (decision 029).
        if record is None or record.version != expected.record_version:
            raise StoreLost(f"{where} has another version {expected.record_version} than the journal: {cure}")


@dataclass(frozen=True)
class _Fresh:
    """An upload that is folded in for the first time, and its record but for the weight."""

    change: Change
    record: Applied


def _apply(working: WorkingVector, fresh: Sequence[_Fresh], state: RuleState) -> list[Applied]:
    """Fold the uploads in; returns their records with the weights given. Raises Unfit."""
    weights = fold_changes([item.change for item in fresh], working, state)
    refused = {item.record.workunit: item.change.refused for item in fresh}
    if unfit := {workunit: reason for workunit, reason in refused.items() if reason is not None}:
        raise Unfit(unfit)
    return [replace(item.record, weight=weight) for item, weight in zip(fresh, weights, strict=True)]
