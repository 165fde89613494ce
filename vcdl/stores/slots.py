"""The vectors of a folder store, one file: mapped for reading, written by calls.

A mapped page that the kernel has written back takes a fault of some microseconds at the next change, one for each 4 KiB: between updates
that are seconds apart that is all of them, and five times the time of the calls.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vcdl.stores.base import BLOCK
from vcdl.weights import Vector

SLOTS = 3
"""One with the newest version, one that is written, and one for who follows the writer."""

_MAPPED_AT_MOST = 2
"""Those that a server alone takes in turn. What is mapped counts as its memory."""


class Slots:
    """Vectors of `size` float32, each from the begin of a page on. What the disk says is an OSError."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._slot_bytes = max(4, 4 * size)  # nothing cannot be mapped
        self._stride_bytes = -(-self._slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._file_id = (0, 0)
        self._mapped: dict[int, Vector] = {}
        """By slot, of the file with this id, the last ones used: to map all pages of a slot takes a tenth of a fold."""

    @property
    def size_bytes(self) -> int:
        """Of the file, which ends with its last vector."""
        return (SLOTS - 1) * self._stride_bytes + self._slot_bytes

    def make(self, vector: Vector) -> None:
        """Make the file, with a vector in slot 0 and zero behind it.

        Allocated as a whole: a disk that fills up later must fail here, not as SIGBUS in a mapped page.
        """
        with self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            file.write(np.ascontiguousarray(vector, np.float32).data)
            file.flush()
            os.fsync(file.fileno())

    def mapped(self, slot: int) -> Vector:
        """A slot as it is now and will be: it changes when it is written."""
        status = self._path.stat()
        if self._file_id != (status.st_dev, status.st_ino):
            self._file_id = (status.st_dev, status.st_ino)
            self._mapped.clear()
        vector = self._mapped.pop(slot, None)
        if vector is None:
            vector = self._map(slot)
        self._mapped[slot] = vector
        if len(self._mapped) > _MAPPED_AT_MOST:
            del self._mapped[next(iter(self._mapped))]
        return vector

    def let_go(self) -> None:
        """Of what is mapped."""
        self._mapped.clear()

    def _map(self, slot: int) -> Vector:
        with self._path.open("rb") as file:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE  # at once: a fault for every few pages costs more
            begin = slot * self._stride_bytes
            memory = mmap.mmap(file.fileno(), self._slot_bytes, flags, mmap.PROT_READ, offset=begin)
        return np.frombuffer(memory, np.float32)[: self._size]

    def writer(self, slot: int, wrote: Callable[[int], None]) -> "SlotWriter":
        """For new values of a slot; `wrote` is told how many weights are in the file, as it was told with them."""
        return SlotWriter(self._path, slot * self._stride_bytes, min(BLOCK, self._size), wrote)


class SlotWriter:
    """Writes a slot, block by block: while a block is in the processor's cache."""

    def __init__(self, path: Path, begin_bytes: int, room: int, wrote: Callable[[int], None]) -> None:
        """`room`: numbers of a block."""
        self._begin_bytes = begin_bytes
        self._wrote = wrote
        self._room = np.empty(room, np.float32)
        self._descriptor = os.open(path, os.O_WRONLY)

    def room(self, size: int) -> Vector:
        """Memory for a block's new values."""
        return self._room[:size]

    def write(self, end: int, parts: Sequence[tuple[int, Vector]]) -> None:
        """New values, each from a number of the vector on; the weights before `end` are new then."""
        for first, numbers in parts:
            missing, at = numbers.view(np.uint8).data, self._begin_bytes + 4 * first
            while missing:
                done_bytes = os.pwrite(self._descriptor, missing, at)
                missing, at = missing[done_bytes:], at + done_bytes
        self._wrote(end)

    def close(self) -> None:
        os.close(self._descriptor)
