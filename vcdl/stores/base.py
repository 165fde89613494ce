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
from vcdl.wire.layout import Vector

_TRIES = 100
"""Attempts at a fold that is overtaken by other servers each time. Servers take turns, so a second attempt is rare, and
a hundredth means that something is wrong."""


@dataclass(frozen=True)
class Applied:
    """The store's record of a subtask that was applied, written in the same transaction as the weights.

    If a server is killed before it writes the journal row, the row is written from this record when the result is
    claimed again.
    """

    subtask: str
    workunit: str
    """The workunit whose upload was applied. Uploads of other attempts at the same subtask are not applied any more."""
    version: int
    """The version that this update made."""
    staleness: int
    """Number of versions between the one that the client started from and the weights that it was applied to."""
    weight: float
    """The weight that the rule gave to the client's weights."""
    trust: float = 1.0
    """The factor by which the upload counted less because of the trust in its host, from 0 to 1."""


RESTORED = "restored"
"""The subtask's name in the record that a restore leaves. A store without this record was replaced by a copy from
before the restore."""


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
    """The order to apply one upload."""

    subtask: str
    workunit: str
    base_version: int
    begin: Callable[[int], Change]
    """Opens the upload, given its staleness; not called if its subtask was applied before. If another server commits
    first, it is called again with the new staleness."""
    trust: float = 1.0
    """`Applied.trust` of its record."""


@dataclass(frozen=True)
class Boundary:
    """The versions that need a snapshot before the weights change again: the multiples of `every`.

    `WeightStore.fold` stops after an upload that makes one of them.
    """

    every: int
    keep: Callable[[int, Vector], None]
    """Writes the snapshot of a version, given the version and its W. With an eventual store it may be called again with
    a corrected W."""
    kept: Callable[[int], bool]
    """Returns whether a version has a snapshot. It lacks one if a server was killed between its commit and `keep`; the
    next fold then writes it."""


@dataclass(frozen=True)
class Expected:
    """The newest update or restore according to the journal, which the store must contain, too.

    If it does not, the store was replaced by an older copy. Such a copy may reach the same version number with other
    updates, so the subtask is compared as well.
    """

    version: int = 0
    """The newest version in the journal."""
    subtask: str = ""
    """The subtask of the newest update, RESTORED if the store was restored after it, or "" if nothing was applied."""
    record_version: int = 0
    """The version of that record."""


def _nothing() -> Expected:
    """Return the expectation that any store meets."""
    return Expected()


def _never(_: int) -> bool:
    return False


class Conflict(Exception):
    """Raised when another server committed between this transaction's read and its write.

    Nothing was changed: retry.
    """


class Transaction(ABC):
    """One read and one write of the store's vector, as a whole or not at all.

    Without `commit`, nothing has changed at its end, also after a kill.
    """

    version: int
    """The newest version when the transaction began."""

    @property
    @abstractmethod
    def working(self) -> WorkingVector:
        """The whole vector, to be changed in place; no other process sees the changes before `commit`.

        Raises:
            Conflict, StoreError: The vector cannot be read.
        """

    @abstractmethod
    def weights(self) -> Vector:
        """Return W, shape (n,), for reading. Call it before `working` is changed (old W) or after `commit` (new W)."""

    @abstractmethod
    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of the given subtasks, keyed by subtask. Subtasks that were never applied are left out."""

    @abstractmethod
    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        """Make vector, version and records visible together.

        Returns:
            The version that was made: `version`, unless the store is eventual and others have written in the meantime.
            Then it is higher, and the versions in the records are stored higher by the same difference.

        Raises:
            Conflict: Another server committed first.
            StoreError: The store cannot be written.
        """


class WeightStore(ABC):
    """The versioned weights of one job, with the numbers that its rule keeps for them.

    A store is one vector, its version number, and a record of each applied subtask, which change together or not at
    all. So no subtask is applied twice, whichever process is killed at any moment.
    """

    state: RuleState
    """The layout of the rule's own numbers, which follow W in the store's vector."""
    overwrites: bool = False
    """Whether simultaneous servers may overwrite each other's updates. True for eventual stores only."""
    expected: Callable[[], Expected] = staticmethod(_nothing)
    """Returns the newest record according to the journal. It is called before each read; if the store lacks the record,
    the read raises StoreLost."""
    is_taken: Callable[[int], bool] = staticmethod(_never)
    """Returns whether a version that the store is about to make existed before. Then the store was replaced by an older
    copy, and the fold raises StoreLost."""

    @abstractmethod
    def create(self, vector: Vector) -> None:
        """Create the store with version 0, given W of shape (n,). Do nothing if the store exists."""

    def check_service(self) -> None:
        """Check that the server behind the store is set up so that it keeps weights safely, whatever it stores now.

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
        """Return the newest version and a copy of the whole vector: W and the rule's numbers (vcdl.rules.state)."""

    def regain(self, records: Sequence[Applied], are_all: Callable[[int, Collection[Applied]], bool]) -> bool:
        """Write the store's damaged records again from the journal's, if its weights are undamaged.

        Args:
            records: The records known from the journal.
            are_all: Returns whether a version consists of exactly the given records.

        Returns:
            Whether it succeeded. If not, nothing was changed; call `restore`.
        """
        return False

    @abstractmethod
    def records(self, after_version: int) -> list[Applied]:
        """Return the records of updates with a later version than this one, in any order."""

    @abstractmethod
    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Begin a transaction, which changes nothing unless it is committed within the block."""

    @abstractmethod
    def drop(self) -> None:
        """Remove everything of the job from the store; do nothing if there is nothing.

        Call it only if the job has ended and its weights are kept elsewhere.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. The weights stay in the store."""

    def lost_updates(self) -> int:
        """Return how many updates other servers have overwritten, up to the version that was last read or made.

        It is 0 except in an eventual store.
        """
        return 0

    @abstractmethod
    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        """Replace the store's whole content by a vector: after StoreLost, or when the job rolls back.

        Updates that are later than the vector are applied again by the servers that have their uploads.

        Args:
            version: The version of the vector.
            vector: The whole vector: W and the rule's numbers.
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
            boundary: The versions to keep as snapshots; None for none. Once one is made, the other uploads are not
                applied, and fewer records than uploads are returned: call again with the others.

        Raises:
            Unfit: Some uploads are refused.
            StoreUnavailable: Call again later. If the connection broke during the commit, the next call finds out
                whether the commit took effect.
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
        """Apply uploads within a transaction, commit it, and return their records, up to a boundary."""
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
        where: Names the store in the error's message.

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
    """An upload whose subtask was not applied before, with its record, in which the weight is still 0."""

    change: Change
    record: Applied


def _apply(working: WorkingVector, fresh: Sequence[_Fresh], state: RuleState) -> list[Applied]:
    """Apply uploads to `working` in place, and return their records with the weights that the rule gave.

    Raises:
        Unfit: Some uploads are refused.
    """
    weights = fold_changes([item.change for item in fresh], working, state)
    refused = {item.record.workunit: item.change.refused for item in fresh}
    if unfit := {workunit: reason for workunit, reason in refused.items() if reason is not None}:
        raise Unfit(unfit)
    return [replace(item.record, weight=weight) for item, weight in zip(fresh, weights, strict=True)]
