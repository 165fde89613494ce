"""The common part of the stores on a server: a small head names the newest generation of chunks.

The head is changed by compare-and-set. A generation is a random name of one write: equal names mean equal weights, even
if a server has lost its data and counts its versions from 0 again. A parameter server keeps the vector that it wrote
last in memory, and changes it in place. As long as no other parameter server writes, a fold reads no chunks, and needs
memory for one vector and one chunk.
"""

import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import Applied, Conflict, Expected, Transaction, WeightStore, check_expected
from vcdl.stores.change import InMemory
from vcdl.stores.chunks import CHUNK_BYTES
from vcdl.stores.settings import Consistency, StoreSettings
from vcdl.wire.layout import Vector

_TRIES = 20
"""Attempts at a call that other servers keep interrupting; with turns a second one is rare, so this many mean
overload."""

T = TypeVar("T")


@dataclass(frozen=True)
class Head:
    """The small part of a job's data that names its chunks, version and sizes."""

    era: str
    """A name drawn when weights are created or restored; versions can be compared within one era only."""
    generation: str
    """A random name, new with every write."""
    version: int
    kept: int
    """The number of updates in these weights; `version − kept` were overwritten (eventual stores only)."""
    size: int
    """Number of float32 numbers in the whole vector."""
    chunk_bytes: int


def fresh_name() -> str:
    """Return a name for an era or a generation: 16 hex digits."""
    return secrets.token_hex(8)


class ServerStore(WeightStore):
    """A weight store on a server that other processes use as well; one object belongs to one thread.

    A write replaces head, chunks and records together, and only if the head is still the one that was read; an eventual
    store also overwrites a newer one. `strong` servers additionally take turns, so that none works for nothing.
    """

    def __init__(
        self, settings: StoreSettings, job: str, size: int, chunk_bytes: int = CHUNK_BYTES, state: RuleState = STATELESS
    ) -> None:
        """Prepare a store without connecting.

        Args:
            settings: The server's address and login.
            job: The key of the weights on the server.
            size: The number of weights n.
            chunk_bytes: Bytes of a chunk (vcdl.stores.chunks).
            state: The layout of the update rule's own numbers, which follow W.
        """
        self.state = state
        self.overwrites = settings.consistency == Consistency.EVENTUAL
        self._settings = settings
        self._job = job
        self._weights = size
        self._size = state.size(size)
        self._chunk_bytes = chunk_bytes
        self._copy: Vector | None = None
        self._copy_generation = ""
        """The generation of `_copy`, or "" while it is being changed and after a failure."""
        self._seen: Head | None = None

    # A backend implements the following methods. Each may raise StoreUnavailable and StoreError.

    @abstractmethod
    def _head(self) -> Head | None:
        """Return the current head, or None if the server has nothing of this job."""

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[Head | None]:
        """Yield the head. Within the block, `_load` reads exactly its chunks, or raises Conflict or StoreLost."""

    @abstractmethod
    def _turn(self) -> AbstractContextManager[Head | None]:
        """Wait for this process's turn, and yield the head; other `strong` servers wait until the block's end."""

    @abstractmethod
    def _load(self, head: Head, out: Vector) -> None:
        """Read a head's chunks into `out`, from the first one on, until it is full.

        Raises:
            Conflict: Another server has replaced them.
            StoreLost: One is missing or damaged for another reason.
        """

    @abstractmethod
    def _find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of the given subtasks, keyed by subtask. Subtasks that were never applied are left out."""

    @abstractmethod
    def _records(self, after_version: int) -> list[Applied]:
        """Return the records of versions above `after_version`, in any order."""

    @abstractmethod
    def _replace(self, old: Head | None, new: Head, vector: Vector, applied: Sequence[Applied], *, anyway: bool) -> int:
        """Write head, chunks and records, all or nothing, and return the version that was made.

        Args:
            old: The head that the vector was made from.
            new: The head to write; a new era removes all older records.
            vector: The whole vector.
            applied: The records to add.
            anyway: Whether to overwrite a head that another server wrote since `old`. Version and records then continue
                from that head.

        Raises:
            Conflict: The head is no longer `old`, or a subtask has a record.
        """

    # The other methods are the same for all backends.

    def create(self, vector: Vector) -> None:
        self._check_size(self.state.size(vector.size))
        if self._retry_disturbed(self._head) is None:
            self._put(None, 0, self.state.initial(vector), (), 0)

    def version(self) -> int:
        return self._retry_disturbed(self._newest).version

    def lost_updates(self) -> int:
        head = self._seen or self._retry_disturbed(self._newest)
        return head.version - head.kept

    def read(self) -> tuple[int, Vector]:
        return self._read(self._weights)

    def read_whole(self) -> tuple[int, Vector]:
        return self._read(self._size)

    def records(self, after_version: int) -> list[Applied]:
        self.version()
        return self._records(after_version)

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        self._check_size(vector.size)
        old = self._retry_disturbed(self._head)
        # Another server has restored the store since this one found it lost. By now its weights contain newer updates,
        # which this vector lacks.
        if old is not None and self._seen is not None and old.era != self._seen.era:
            return False
        return self._put(old, version, vector, applied, lost)

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        expected = self.expected()
        # A `strong` server waits for its turn: of two servers that fold the same version, one works for nothing.
        # An eventual server never waits, which is its purpose.
        with self._snapshot() if self.overwrites else self._turn() as head:
            yield _ServerTransaction(self, self._check_head(head, expected))

    def working_copy(self, head: Head) -> Vector:
        """Return the whole vector of a head, to be changed in place, until `commit` or the next call.

        Its chunks are read only if this process did not write this generation itself.
        """
        if self._copy is None:
            self._copy = np.empty(self._size, np.float32)
        # Compare the generation and not the version: a server that lost its data restarts its count of versions
        # (decision 005).
        if self._copy_generation != head.generation:
            # It stays unknown until the commit: a fold that fails in between leaves a vector that belongs to no
            # version.
            self._copy_generation = ""
            self._load(head, self._copy)
        self._copy_generation = ""
        return self._copy

    def commit(self, head: Head, version: int, applied: Sequence[Applied]) -> int:
        """Write the working copy, which was made from `head`, and return the new version.

        Raises:
            Conflict: Another server committed first.
            StoreError: The server cannot be written.
        """
        if self._copy is None:
            raise StoreError("nothing to commit: this is a bug in vcdl")
        # `kept` continues from the head that was read, while the version continues from the current head. Their
        # difference is the number of lost updates.
        kept = head.kept + version - head.version
        new = replace(head, generation=fresh_name(), version=version, kept=kept)
        made = self._replace(head, new, self._copy, applied, anyway=self.overwrites)
        self._copy_generation = new.generation
        self._seen = replace(new, version=made)
        return made

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of the given subtasks, keyed by subtask. Subtasks that were never applied are left out."""
        return self._find(subtasks)

    def _put(self, old: Head | None, version: int, vector: Vector, applied: Sequence[Applied], lost: int) -> bool:
        """Replace the content with head `old` by this vector; return False if another process replaced it first."""
        new = Head(
            era=fresh_name(),
            generation=fresh_name(),
            version=version,
            kept=version - lost,
            size=self._size,
            chunk_bytes=self._chunk_bytes,
        )
        for _ in range(_TRIES):
            try:
                self._replace(old, new, np.ascontiguousarray(vector, np.float32), applied, anyway=False)
                self._seen = new
                return True
            except Conflict:  # or a deadlock with a server that creates another job
                if self._retry_disturbed(self._head) != old:
                    return False
        raise StoreUnavailable(
            f"{self._settings} is busy with other servers: job {self._job} could not be stored there; try again"
        )

    def _retry_disturbed(self, call: Callable[[], T]) -> T:
        """Repeat a call while it raises Conflict, and return its result.

        Raises:
            StoreUnavailable: Other servers interfered each time.
        """
        for _ in range(_TRIES):
            try:
                return call()
            except Conflict:
                continue
        raise StoreUnavailable(
            f"{self._settings} was changed by other servers {_TRIES} times in a row: run fewer servers"
        )

    def _read(self, size: int) -> tuple[int, Vector]:
        """Return the newest version and a copy of the first `size` numbers of its vector."""
        expected = self.expected()
        # First try without a turn, so that a reader does not delay the servers. Take a turn only if they interfere each
        # time.
        for _ in range(3):
            try:
                with self._snapshot() as head:
                    return self._copy_vector(self._check_head(head, expected), size)
            except Conflict:
                continue

        def alone() -> tuple[int, Vector]:
            with self._turn() as head:
                return self._copy_vector(self._check_head(head, expected), size)

        return self._retry_disturbed(alone)  # others write faster than this one reads: make them wait

    def _newest(self) -> Head:
        """Return the current head, after checking that it contains the expected record.

        Raises:
            Conflict: Another server interfered.
        """
        expected = self.expected()
        with self._snapshot() as head:
            return self._check_head(head, expected)

    def _copy_vector(self, head: Head, size: int) -> tuple[int, Vector]:
        """Return a head's version and the first `size` numbers of its vector, without reading later chunks."""
        # Read whole chunks, because each has one seal.
        chunk = head.chunk_bytes // 4
        out = np.empty(min(self._size, -(-size // chunk) * chunk), np.float32)
        if self._copy is not None and self._copy_generation == head.generation:
            np.copyto(out, self._copy[: out.size])
        else:
            self._load(head, out)
        return head.version, out[:size]

    def _lost_chunk(self, number: int) -> StoreLost:
        """Return the error for a chunk that was evicted, removed by hand or truncated; VCDL never does that."""
        return StoreLost(
            f"chunk {number} of job {self._job} in {self._settings} is missing or damaged: the weights must be "
            "restored from a snapshot"
        )

    def _check_head(self, head: Head | None, expected: Expected) -> Head:
        """Check that a head exists and contains the expected record, and return it.

        Raises:
            StoreLost: It does not.
            StoreError: It belongs to another model.
        """
        if head is None:
            raise StoreLost(
                f"{self._settings} has no weights of job {self._job}: the server lost its memory, or never had them; "
                "they must be restored from a snapshot"
            )
        self._check_size(head.size)
        self._seen = head
        check_expected(expected, head.version, self._find, f"job {self._job} in {self._settings}")
        return head

    def _check_size(self, size: int) -> None:
        if size != self._size:
            raise StoreError(
                f"the store has {size} weights under the name {self._job}, but this model has {self._size}: "
                "a job with another model used that name; rename this job"
            )


class _ServerTransaction(Transaction):
    def __init__(self, store: ServerStore, head: Head) -> None:
        self.version = head.version
        self._store = store
        self._head = head

    @cached_property
    def working(self) -> InMemory:
        return InMemory(self._copy, self._store.state)

    def weights(self) -> Vector:
        return self._store.state.weights(self._copy)

    @cached_property
    def _copy(self) -> Vector:
        return self._store.working_copy(self._head)

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        return self._store.find(subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        return self._store.commit(self._head, version, applied)
