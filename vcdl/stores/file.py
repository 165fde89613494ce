"""The weight store in a folder of the local disk: two slots and a log of commits.

    weights.bin   two vectors of float32 (vcdl.state), one after the other; the newest version is in the slot that the log names
    commits.log   a line a commit: CRC-32, a space, JSON {version, slot, applied: [...]}; the first line is version 0
    lock          held (flock) by whoever is in a transaction

A transaction writes the slot that nobody reads, then appends one line, and that line is the commit: killed before it, the old
version stands; killed in the middle of it, the line has no valid checksum and is cut off by the next writer.

The slots are mapped for reading and written by calls. A mapped page that the kernel has written back takes a fault of some microseconds at the
next change, one for each 4 KiB: between updates that are seconds apart that is all of them, and five times the time of the calls.
"""

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path

import numpy as np

from vcdl.errors import StoreError, StoreUnavailable
from vcdl.state import STATELESS, State
from vcdl.stores.base import Applied, Transaction, WeightStore
from vcdl.weights import Vector

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""No room on the disk, in the user's quota, or in the largest file that the process may write."""


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
        self._slots: Vector | None = None
        self._written: FileIO | None = None
        self._end = 0
        self._version = -1
        self._slot = 0
        self._applied: dict[str, Applied] = {}

    def create(self, vector: Vector) -> None:
        if vector.size != self._weights:
            raise StoreError(f"{vector.size} weights for a store of {self._weights}: this is a mistake in vcdl")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if self._log_file.exists():
                    return
                with self._weights_file.open("wb") as file:
                    # Allocated as a whole: a disk that fills up later must fail here, not as SIGBUS in a mapped page. Zero behind W.
                    os.posix_fallocate(file.fileno(), 0, max(1, 2 * 4 * self._size))
                    file.write(np.ascontiguousarray(vector, np.float32).data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary = self._log_file.with_suffix(".tmp")
                temporary.write_bytes(_line(0, 0, ()))
                temporary.replace(self._log_file)
        except OSError as error:
            raise self._cannot("create", error) from error

    def version(self) -> int:
        with self._locked():
            self._catch_up()
            return self._version

    def read(self) -> tuple[int, Vector]:
        with self._locked():
            self._catch_up()
            return self._version, self.state.weights(self.newest()).copy()

    def read_whole(self) -> tuple[int, Vector]:
        with self._locked():
            self._catch_up()
            return self._version, self.newest().copy()

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._locked():
            self._catch_up()
            yield _FileTransaction(self, self._version)

    def drop(self) -> None:
        self.close()
        try:
            # The log first: without it there is no store, whatever else a kill leaves.
            for path in (self._log_file, self._weights_file, self._folder / "lock"):
                path.unlink(missing_ok=True)
            if self._folder.exists():
                self._folder.rmdir()
        except OSError as error:
            raise self._cannot("remove", error) from error

    def close(self) -> None:
        self._slots = None
        if self._written is not None:
            self._written.close()
            self._written = None

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """What is recorded for subtasks, as of the last transaction."""
        return {subtask: self._applied[subtask] for subtask in subtasks if subtask in self._applied}

    def newest(self) -> Vector:
        """The newest vector, mapped: it changes under a reader who is not in a transaction."""
        newest: Vector = self._mapped()[self._slot]
        return newest

    def write(self, first: int, numbers: Vector) -> None:
        """Write numbers of the slot that nobody reads, from its number `first` on. Raises StoreError."""
        missing = np.ascontiguousarray(numbers).view(np.uint8).data
        at = 4 * ((1 - self._slot) * self._size + first)
        try:
            if self._written is None:
                self._written = self._weights_file.open("r+b", buffering=0)
            while missing:
                done_bytes = os.pwrite(self._written.fileno(), missing, at)
                missing, at = missing[done_bytes:], at + done_bytes
        except OSError as error:
            raise self._cannot("write to", error) from error

    def append(self, version: int, applied: Sequence[Applied]) -> None:
        """Commit the working slot. Raises StoreError, with the log as it was."""
        line = _line(version, 1 - self._slot, applied)
        try:
            # Unbuffered: nothing of a refused line may be written later, when the file is closed.
            with self._log_file.open("r+b", buffering=0) as log:
                log.truncate(self._end)  # what a killed writer left half-written
                log.seek(self._end)
                try:
                    if log.write(line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    log.truncate(self._end)
                    raise
        except OSError as error:
            raise self._cannot("commit to", error) from error
        self._take_in(version, 1 - self._slot, applied)
        self._end += len(line)

    def _catch_up(self) -> None:
        """Take in the commits that this or another process has appended since the last look."""
        try:
            with self._log_file.open("rb") as log:
                log.seek(self._end)
                lines = log.read().splitlines(keepends=True)
        except OSError as error:
            raise self._cannot("read", error) from error
        for number, line in enumerate(lines, start=1):
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                if (
                    number < len(lines) and self._version >= 0
                ):  # a killed writer leaves half a line, and only at the end
                    raise StoreError(
                        f"the weight store in {self._folder} is damaged: the commit after version {self._version} is "
                        "unreadable and others follow it; check the disk, then start the job anew in another folder"
                    )
                break
            commit = json.loads(body)
            self._take_in(commit["version"], commit["slot"], [Applied(**fields) for fields in commit["applied"]])
            self._end += len(line)
        if self._version < 0:
            raise StoreError(
                f"the weight store {self._folder.name} has no valid commit: start the job anew in another folder"
            )

    def _take_in(self, version: int, slot: int, applied: Sequence[Applied]) -> None:
        self._version, self._slot = version, slot
        self._applied |= {record.subtask: record for record in applied}

    def _mapped(self) -> Vector:
        if self._slots is None:
            try:
                size_bytes = self._weights_file.stat().st_size
                if size_bytes != max(1, 2 * 4 * self._size):
                    raise StoreError(
                        f"the weight store holds {size_bytes} bytes, this model needs {8 * self._size}: "
                        "the folder belongs to a job with another model"
                    )
                self._slots = np.memmap(self._weights_file, np.float32, "r", shape=(2, self._size))
            except OSError as error:
                raise self._cannot("open", error) from error
        return self._slots

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._cannot("lock", error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _cannot(self, verb: str, error: OSError) -> StoreError:
        if error.errno in _FULL:
            return StoreUnavailable(
                f"cannot {verb} the weight store in {self._folder}: {error.strerror or error}; make room on its disk"
            )
        return StoreError(
            f"cannot {verb} the weight store in {self._folder}: {error.strerror or error}; "
            "check the disk's free space and the folder's rights, then `vcdl resume`"
        )


class _FileTransaction(Transaction):
    def __init__(self, store: FileStore, version: int) -> None:
        self.version = version
        self._store = store

    @property
    def vector(self) -> Vector:
        return self._store.newest()

    def buffers(self) -> tuple[Vector, Vector | None]:
        return self._store.newest(), None

    def write(self, first: int, numbers: Vector) -> None:
        self._store.write(first, numbers)

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        return self._store.find(subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        self._store.append(version, applied)
        return version


def _line(version: int, slot: int, applied: Sequence[Applied]) -> bytes:
    body = (
        json.dumps({"version": version, "slot": slot, "applied": [asdict(record) for record in applied]}).encode()
        + b"\n"
    )
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
