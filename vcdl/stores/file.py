"""The weight store in a folder of the local disk.

    weights.bin   two vectors of float32 (vcdl.rules.state); the log names the slot of the newest version
    commits.log   a line per commit: CRC-32, a space, JSON {version, slot, checksums: [of W, of the others], applied};
                  the first line is a whole version; a line with `restored: true` replaces all older records
    lock          an exclusive lock (flock), held by every transaction and every reader

A transaction reads the newest slot, writes the other one, then appends one line, which is the commit. If it is killed
before that, the old version stays the newest. Servers take turns: the kernel releases the lock whenever its holder
ends. Each read compares the checksum of the slot with the commit's, and raises StoreLost if the slot was damaged.
"""

import errno
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from vcdl.errors import DISK_FULL, StoreError, StoreLost, StoreUnavailable, file_cure
from vcdl.files.atomic import sweep
from vcdl.files.lock import locked
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import Applied, Transaction, WeightStore, check_expected
from vcdl.stores.change import FOLD_BLOCK
from vcdl.stores.commit_log import CommitLog
from vcdl.stores.settings import StoreSettings
from vcdl.stores.slots import OpenedSlots, WeightSlots
from vcdl.wire.checksum import Checksum, checksum_of
from vcdl.wire.layout import Vector


class FileStore(WeightStore):
    """Versioned weights in a folder; any number of processes may use it simultaneously."""

    def __init__(self, folder: Path, size: int, state: RuleState = STATELESS) -> None:
        """Prepare a store without touching its folder.

        Args:
            folder: The folder of the weights, the log of their versions and the lock.
            size: The number of weights n.
            state: The size of the update rule's own state, which is kept next to W.
        """
        self.state = state
        self.width = size
        self.size = state.size(size)
        """Number of float32 numbers in the whole vector."""
        self._folder = folder
        self._lock_file = folder / "lock"
        self._weights_file = folder / "weights.bin"
        self._log_file = folder / "commits.log"
        self._slots = WeightSlots(self._weights_file, self.size)
        self._log = CommitLog(self._log_file)

    @classmethod
    def of_job(cls, settings: StoreSettings, job: str, size: int, state: RuleState = STATELESS) -> Self:
        """Return the store of a job in a folder that jobs may share.

        It is always `strong`, even if `eventual` is requested.
        """
        return cls(settings.folder / job, size, state)

    def create(self, vector: Vector) -> None:
        if vector.size != self.width:
            raise StoreError(f"{vector.size} weights for a store of {self.width}: this is a bug in vcdl")
        with self.naming("create"):
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                # The log is created last and removed first. A store without it is one whose creation was killed.
                if not self._log_file.exists():
                    sweep(self._folder)
                    whole = self.state.initial(vector)
                    self._slots.make(whole)
                    self._log.make(self.checksums(whole))

    def version(self) -> int:
        with self._open_checked() as log:
            return log.version

    def read(self) -> tuple[int, Vector]:
        with self._transaction() as transaction:
            return transaction.version, transaction.weights()

    def read_whole(self) -> tuple[int, Vector]:
        with self._transaction() as transaction:
            return transaction.version, transaction.read(self.size)

    def regain(self, records: Sequence[Applied], are_all: Callable[[int, Collection[Applied]], bool]) -> bool:
        # Most runs in a folder keep no uploads, so their newest weights exist only here. If only records are damaged,
        # the journal's rows can replace them (decision 123).
        log, expected = CommitLog(self._log_file, skips_damage=True), self.expected()
        with suppress(StoreError), self._locked(), self.naming("repair"):
            log.catch_up()
            check_expected(expected, log.version, log.find, f"the weight store in {self._folder}")
            with self._slots.opened() as slots:
                _FileTransaction(self, log, slots).read(self.size)
            known = {record.subtask: record for record in (*records, *log.records(-1))}.values()
            if are_all(log.version, known):
                log.make(log.checksums, log.version, [*known], log.slot)
                return True
        return False

    def records(self, after_version: int) -> list[Applied]:
        with self._open_checked() as log, self.naming("read"):
            return log.records(after_version)

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        if vector.size != self.size:
            raise StoreError(f"{vector.size} numbers for a store of {self.size}: this is a bug in vcdl")
        with self.naming("make"):
            self._folder.mkdir(parents=True, exist_ok=True)
        vector = np.ascontiguousarray(vector, np.float32)
        with self._locked(), self.naming("write to"):
            try:
                self._log.catch_up()
                with self._slots.opened() as slots:
                    # Write into the other slot, as for a fold: until the line is written, the damaged or older store is
                    # unchanged.
                    target = 1 - self._log.slot
                    slots.write(target, 0, vector)
                    self._log.append(version, target, self.checksums(vector), applied, restored=True)
            except (FileNotFoundError, StoreLost):  # somebody deleted the files, or the log is damaged
                self._log_file.unlink(missing_ok=True)  # first: without it there is no store, whatever a kill leaves
                self._slots.make(vector)
                self._log.make(self.checksums(vector), version, applied)
        return True

    def checksums(self, vector: Vector) -> tuple[str, str]:
        """Return the checksums of W and of the rule's numbers after it, given a vector of W or of both."""
        return checksum_of(vector[: self.width]), checksum_of(vector[self.width :], self.width)

    def check(self, log: CommitLog, found: tuple[str, ...]) -> None:
        """Compare checksums of numbers read from the newest slot with those of its commit.

        Args:
            log: The log with the commit.
            found: The checksum of W, or those of W and of the numbers after it.

        Raises:
            StoreLost: The slot is damaged.
        """
        if found != log.checksums[: len(found)]:
            raise StoreLost(
                f"version {log.version} in the weight store in {self._folder} is damaged, and must be rebuilt: "
                "check the disk"
            )

    @contextmanager
    def _transaction(self) -> Iterator["_FileTransaction"]:
        with self._open_checked() as log, ExitStack() as opened:
            with self.naming("open"):
                slots = opened.enter_context(self._slots.opened())
            yield _FileTransaction(self, log, slots)

    def drop(self) -> None:
        with self.naming("remove"):
            # The log first: without it there is no store, whatever else a kill leaves.
            for path in (self._log_file, self._weights_file, self._lock_file):
                path.unlink(missing_ok=True)
            if self._folder.exists():
                self._folder.rmdir()

    def close(self) -> None:
        return

    @contextmanager
    def _open_checked(self) -> Iterator[CommitLog]:
        """Lock the store, and yield its log after checking that the store contains the expected record.

        Raises:
            StoreLost: The store is damaged, or lacks that record.
        """
        expected = self.expected()
        with self._caught_up() as log:
            with self.naming("read"):
                check_expected(expected, log.version, log.find, f"the weight store in {self._folder}")
            yield log

    @contextmanager
    def _caught_up(self) -> Iterator[CommitLog]:
        """Lock the store, and yield its log with every commit; no other process can commit within the block."""
        with self._locked():
            with self.naming("read"):
                self._log.catch_up()
            yield self._log

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store's lock during the block, exclusively; wait for other processes."""
        with ExitStack() as held:
            with self.naming("lock"):
                held.enter_context(locked(self._lock_file))
            yield

    @contextmanager
    def naming(self, verb: str) -> Iterator[None]:
        """Raise an OSError within the block as a StoreError.

        Args:
            verb: What the block does with the store, for the message: "cannot VERB the weight store".

        Raises:
            StoreLost: A file of the store is missing.
            StoreUnavailable: The disk is full.
            StoreError: Any other failure.
        """
        try:
            yield
        except OSError as error:
            what = f"cannot {verb} the weight store in {self._folder}: {error.strerror or error}"
            if error.errno == errno.ENOENT and not (self._log_file.exists() and self._weights_file.exists()):
                raise StoreLost(f"the weight store in {self._folder} is missing: somebody deleted it") from error
            if error.errno in DISK_FULL:
                raise StoreUnavailable(f"{what}; free some space on its disk") from error
            raise StoreError(f"{what}; {file_cure(error)}, then `vcdl resume`") from error


class _FileTransaction(Transaction):
    def __init__(self, store: FileStore, log: CommitLog, slots: OpenedSlots) -> None:
        self.version = log.version
        self._store = store
        self._log = log
        self._slots = slots

    @cached_property
    def working(self) -> "_SlotCopy":
        return _SlotCopy(self._store, self._slots, self._log.slot)

    def weights(self) -> Vector:
        return self.read(self._store.width)

    def read(self, size: int) -> Vector:
        """Return a copy of the first `size` numbers of the newest slot: W or the whole vector. May raise StoreLost."""
        numbers = np.empty(size, np.float32)
        with self._store.naming("read"):
            self._slots.read(self._log.slot, 0, numbers)
        self._store.check(self._log, self._store.checksums(numbers)[: 1 if size == self._store.width else 2])
        return numbers

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        with self._store.naming("read"):
            return self._log.find(subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        working = self.working
        working.keep_tail()
        # Check before the commit: numbers from a damaged slot must not become the base of all later versions. The pass
        # over the blocks computes the sum anyway.
        self._store.check(self._log, working.read.checksums)
        with self._store.naming("commit to"):
            self._log.append(version, working.target, working.written.checksums, applied)
        return version


class _Sums:
    """Computes the checksums of a whole vector block by block."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._sums = Checksum(), Checksum()

    def add(self, begin: int, numbers: Vector) -> None:
        """Add the numbers from `begin` on, of W or after it."""
        self._sums[begin >= self._width].add(numbers, begin)

    @property
    def checksums(self) -> tuple[str, str]:
        """The checksums of the weights W and of the rule's state after W; valid once all blocks were added."""
        return self._sums[0].text, self._sums[1].text


class _SlotCopy:
    """A working vector that is read from one slot and written to the other, a block at a time.

    It computes the checksums of the numbers read and written.
    """

    def __init__(self, store: FileStore, slots: OpenedSlots, source: int) -> None:
        rows = 1 + store.state.vectors
        self.width = store.width
        self.tail = np.empty(store.state.tail, np.float32)
        self.target = 1 - source
        self._store = store
        self._slots = slots
        self._source = source
        self._rows = rows
        self._room = np.empty(min(max(FOLD_BLOCK, rows), rows * self.width), np.float32)
        self._read(rows * self.width, self.tail)
        # A change writes into `tail`, but the checksum of what was read needs the old values.
        self._tail_read = self.tail.copy()
        self.written = _Sums(self.width)
        self.read = self._begin_sums()
        """The checksums of the last pass over the rows."""

    def _begin_sums(self) -> _Sums:
        sums = _Sums(self.width)
        sums.add(self._rows * self.width, self._tail_read)
        return sums

    def block(self, begin: int, end: int) -> Vector:
        # A fold may pass over the blocks twice, for measuring and for folding. Only the checksum of the last pass
        # counts.
        if begin == 0:
            self.read = self._begin_sums()
        block = self._room[: self._rows * (end - begin)].reshape(self._rows, end - begin)
        for row, numbers in enumerate(block):
            self._read(row * self.width + begin, numbers)
            self.read.add(row * self.width + begin, numbers)
        return block if self._rows > 1 else block[0]

    def weights(self, begin: int, end: int) -> Vector:
        numbers = self._room[: end - begin]
        self._read(begin, numbers)
        return numbers

    def keep(self, begin: int, block: Vector) -> None:
        for row, numbers in enumerate(block.reshape(self._rows, -1)):
            self._write(row * self.width + begin, numbers)

    def keep_tail(self) -> None:
        """Write `tail` to the new slot; call it once, before the commit."""
        self._write(self._rows * self.width, self.tail)

    def _read(self, begin: int, out: Vector) -> None:
        with self._store.naming("read"):
            self._slots.read(self._source, begin, out)

    def _write(self, begin: int, numbers: Vector) -> None:
        with self._store.naming("write to"):
            self._slots.write(self.target, begin, numbers)
        self.written.add(begin, numbers)
