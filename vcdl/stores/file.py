"""The weight store in a folder of the local disk: slots and a log of commits.

    weights.bin   three vectors of float32 (vcdl.state, vcdl.stores.slots); the newest version is in the slot that the log names
    commits.log   a line a commit: CRC-32, a space, JSON {version, slot, applied: [...]}; the first line is version 0
    entrance, lock   whose turn it is (vcdl.stores.turns)

A transaction writes a slot that nobody reads, then appends one line, and that line is the commit: killed before it, the old
version stands; killed in the middle of it, the line has no valid checksum and is cut off by the next writer.

Two servers fold at the same time: the second one follows the first, block by block, and reads what that one has written but not
committed yet. It commits after it, or, when the first one fails, begins anew.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from vcdl.errors import DISK_FULL, StoreError, StoreUnavailable
from vcdl.state import STATELESS, State
from vcdl.stores.base import Applied, Conflict, Transaction, WeightStore, Writer
from vcdl.stores.slots import SLOTS, Slots, SlotWriter
from vcdl.stores.turns import Lock, Note, Turn
from vcdl.weights import Vector

_LOCKS = ("entrance", "lock")


class FileStore(WeightStore):
    """Versioned weights in a folder; any number of processes may use it at once."""

    def __init__(self, folder: Path, size: int, state: State = STATELESS) -> None:
        """`size`: number of weights n. Raises StoreError when the folder holds a store of another size."""
        self.state = state
        self._folder = folder
        self._weights = size
        self._size = state.size(size)
        self._weights_file = folder / "weights.bin"
        self._log_file = folder / "commits.log"
        self.slots = Slots(self._weights_file, self._size)
        self._end = 0
        self.newest_version = -1
        self.newest_slot = 0
        self._applied: dict[str, Applied] = {}

    def create(self, vector: Vector) -> None:
        if vector.size != self._weights:
            raise StoreError(f"{vector.size} weights for a store of {self._weights}: this is a mistake in vcdl")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if self._log_file.exists():
                    return
                self.slots.make(vector)
                temporary = self._log_file.with_suffix(".tmp")
                temporary.write_bytes(_line(0, 0, ()))
                temporary.replace(self._log_file)
        except OSError as error:
            raise self._cannot("create", error) from error

    def version(self) -> int:
        with self._locked():
            self.catch_up()
            return self.newest_version

    def read(self) -> tuple[int, Vector]:
        with self._locked():
            self.catch_up()
            return self.newest_version, self.state.weights(self.mapped(self.newest_slot)).copy()

    def read_whole(self) -> tuple[int, Vector]:
        with self._locked():
            self.catch_up()
            return self.newest_version, self.mapped(self.newest_slot).copy()

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with ExitStack() as held:
            with self.saying("lock"):
                entrance, lock = (held.enter_context(Lock(self._folder / name)) for name in _LOCKS)
                entrance.take()
                turn = Turn(entrance, lock)
                ahead = turn.note()
            self.catch_up()
            # What is put behind W is written last. And a note is of now when it began with what is newest: otherwise a reader has the lock.
            if not turn.leads and (self.state.lengths or ahead.base_version != self.newest_version):
                with self.saying("lock"):
                    turn.lead()
                self.catch_up()
            yield held.enter_context(closing(_FileTransaction(self, turn, None if turn.leads else ahead)))

    def drop(self) -> None:
        self.close()
        try:
            # The log first: without it there is no store, whatever else a kill leaves.
            for path in (self._log_file, self._weights_file, *(self._folder / name for name in _LOCKS)):
                path.unlink(missing_ok=True)
            if self._folder.exists():
                self._folder.rmdir()
        except OSError as error:
            raise self._cannot("remove", error) from error

    def close(self) -> None:
        self.slots.let_go()

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """What is recorded for subtasks, as of the last transaction."""
        return {subtask: self._applied[subtask] for subtask in subtasks if subtask in self._applied}

    def mapped(self, slot: int) -> Vector:
        """A slot's vector as it is, and as it will be when it is written. Raises StoreError."""
        with self.saying("open"):
            size_bytes = self._weights_file.stat().st_size
            if size_bytes != self.slots.size_bytes:
                raise StoreError(
                    f"the weight store holds {size_bytes} bytes, this model needs {self.slots.size_bytes}: "
                    "the folder belongs to a job with another model"
                )
            return self.slots.mapped(slot)

    def append(self, version: int, slot: int, applied: Sequence[Applied]) -> None:
        """Commit a slot. Raises StoreError, with the log as it was."""
        line = _line(version, slot, applied)
        # Unbuffered: nothing of a refused line may be written later, when the file is closed.
        with self.saying("commit to"), self._log_file.open("r+b", buffering=0) as log:
            log.truncate(self._end)  # what a killed writer left half-written
            log.seek(self._end)
            try:
                if log.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                log.truncate(self._end)
                raise
        self._take_in(version, slot, applied)
        self._end += len(line)

    def catch_up(self) -> None:
        """Take in the commits that this or another process has appended since the last look."""
        with self.saying("read"), self._log_file.open("rb") as log:
            log.seek(self._end)
            lines = log.read().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                if (
                    number < len(lines) and self.newest_version >= 0
                ):  # a killed writer leaves half a line, and only at the end
                    raise StoreError(
                        f"the weight store in {self._folder} is damaged: the commit after version {self.newest_version} is "
                        "unreadable and others follow it; check the disk, then start the job anew in another folder"
                    )
                break
            commit = json.loads(body)
            self._take_in(commit["version"], commit["slot"], [Applied(**fields) for fields in commit["applied"]])
            self._end += len(line)
        if self.newest_version < 0:
            raise StoreError(
                f"the weight store {self._folder.name} has no valid commit: start the job anew in another folder"
            )

    def _take_in(self, version: int, slot: int, applied: Sequence[Applied]) -> None:
        self.newest_version, self.newest_slot = version, slot
        self._applied |= {record.subtask: record for record in applied}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            with self.saying("lock"):
                held.enter_context(Lock(self._folder / "lock")).take()
            yield

    @contextmanager
    def saying(self, verb: str) -> Iterator[None]:
        """Of what the disk says, a StoreError that names it: 'cannot VERB the weight store'."""
        try:
            yield
        except OSError as error:
            raise self._cannot(verb, error) from error

    def _cannot(self, verb: str, error: OSError) -> StoreError:
        if error.errno in DISK_FULL:
            return StoreUnavailable(
                f"cannot {verb} the weight store in {self._folder}: {error.strerror or error}; make room on its disk"
            )
        return StoreError(
            f"cannot {verb} the weight store in {self._folder}: {error.strerror or error}; "
            "check the disk's free space and the folder's rights, then `vcdl resume`"
        )


class _FileTransaction(Transaction):
    """Its own writer: it knows when the old values are there."""

    def __init__(self, store: FileStore, turn: Turn, ahead: Note | None) -> None:
        """`ahead`: of the leader that it follows; None: it leads."""
        self._store = store
        self._turn = turn
        self.version = ahead.version if ahead else store.newest_version
        self._slot = ahead.slot if ahead else store.newest_slot
        self._next = next(slot for slot in range(SLOTS) if slot not in (self._slot, store.newest_slot))
        self._writer: SlotWriter | None = None
        self._made = self._passed = 0

    @property
    def vector(self) -> Vector:
        self._lead()
        return self._store.mapped(self._slot)

    def buffers(self, version: int) -> tuple[Vector, Writer]:
        old, self._made = self._store.mapped(self._slot), version
        if self._turn.leads:
            self._announce()
        with self._store.saying("write to"):
            self._writer = self._store.slots.writer(self._next, self._turn.passed)
        return old, self

    def wait(self, end: int) -> None:
        if not self._turn.leads:
            with self._store.saying("lock"):
                self._turn.wait(end)
            if self._turn.leads:
                self._see_that_it_was_made()
                self._announce()

    def room(self, size: int) -> Vector:
        return self._writing.room(size)

    def write(self, end: int, parts: Sequence[tuple[int, Vector]]) -> None:
        with self._store.saying("write to"):
            self._writing.write(end, parts)
        self._passed = end

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        return self._store.find(subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        self._lead()
        if self._store.find([record.subtask for record in applied]):
            raise Conflict  # by the leader
        self._store.append(version, self._next, applied)
        self._slot = self._next
        return version

    def close(self) -> None:
        """Nothing is written any more."""
        if self._writer is not None:
            self._writer.close()

    @property
    def _writing(self) -> SlotWriter:
        if self._writer is None:
            raise StoreError("no version to write was named: this is a mistake in vcdl")
        return self._writer

    def _announce(self) -> None:
        if not self._store.state.lengths:
            with self._store.saying("write to"):
                self._turn.announce(Note(self.version, self._made, self._next, self._passed))

    def _lead(self) -> None:
        """When the leader is over. Raises Conflict when it has not made what this transaction began with."""
        if not self._turn.leads:
            with self._store.saying("lock"):
                self._turn.lead()
            self._see_that_it_was_made()

    def _see_that_it_was_made(self) -> None:
        self._store.catch_up()
        if (self._store.newest_version, self._store.newest_slot) != (self.version, self._slot):
            raise Conflict


def _line(version: int, slot: int, applied: Sequence[Applied]) -> bytes:
    body = (
        json.dumps({"version": version, "slot": slot, "applied": [asdict(record) for record in applied]}).encode()
        + b"\n"
    )
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
