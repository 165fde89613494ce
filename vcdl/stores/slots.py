"""The two vectors of a folder store, in one file: the newest version, and the one being made from it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vcdl.errors import StoreError
from vcdl.wire.layout import Vector

_SLOTS = 2
"""Number of slots: two, so that the old version is intact until the commit of the new one."""


class WeightSlots:
    """A file with two vectors of `size` float32, slot 0 and slot 1. All methods raise OSError.

    Writes go to the slot that is not the newest version's, so a killed writer damages nothing.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    @property
    def size_bytes(self) -> int:
        """The size that the file must have, in bytes."""
        return _SLOTS * 4 * self._size

    def make(self, vector: Vector) -> None:
        """Create the file, with a vector in slot 0 and zeros in slot 1.

        It is allocated as a whole, so that a disk which fills up later still has room for every update.
        """
        with self._path.open("wb") as file:
            if self._size:
                # With a sparse file, a full disk would be found in the middle of a fold, or even after its commit.
                os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            file.write(np.ascontiguousarray(vector, np.float32).data)
            file.flush()
            # Sync once, when the file is created. Folds never sync, because a kill loses nothing of the page cache
            # (decision 002).
            os.fsync(file.fileno())

    @contextmanager
    def opened(self) -> Iterator["OpenedSlots"]:
        """Open the file for reading and writing.

        Raises:
            StoreError: It has another size.
        """
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes != self.size_bytes:
                raise StoreError(
                    f"the weight store has {size_bytes} bytes, but this model needs {self.size_bytes}: "
                    "the folder belongs to a job with another model; choose another folder or job name"
                )
            yield OpenedSlots(descriptor, self._size)
        finally:
            os.close(descriptor)


class OpenedSlots:
    """Reads and writes parts of both slots. All methods raise OSError."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size

    def read(self, slot: int, begin: int, out: Vector) -> None:
        """Read numbers of a slot, from number `begin` on, into the contiguous array `out`."""
        missing, at = out.view(np.uint8).data, 4 * (slot * self._size + begin)
        while missing:
            # Linux moves at most 2 GiB in a call, so a large model takes several.
            done_bytes = os.preadv(self._descriptor, [missing], at)
            if not done_bytes:
                raise OSError(errno.EIO, "the file became shorter while it was being read")
            missing, at = missing[done_bytes:], at + done_bytes

    def write(self, slot: int, begin: int, numbers: Vector) -> None:
        """Write contiguous numbers into a slot, from number `begin` on."""
        missing, at = numbers.view(np.uint8).data, 4 * (slot * self._size + begin)
        while missing:
            done_bytes = os.pwrite(self._descriptor, missing, at)
            missing, at = missing[done_bytes:], at + done_bytes
