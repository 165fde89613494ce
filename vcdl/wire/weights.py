"""Write and read the file of a vector of weights: HDF5 of a fixed form, with a JSON header.

The HDF5 file (vcdl.wire.hdf5_form) has `weights`, shape (n,), and a JSON `header`. Everything is checked before memory
is allocated.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from vcdl.errors import WeightsFileError, weights_file_error
from vcdl.files.atomic import atomic_write
from vcdl.wire.checksum import Checksum, checksum_in
from vcdl.wire.hdf5_form import HEADER_LIMIT_BYTES, PREFIX_LIMIT_BYTES, WEIGHTS, Hdf5Dataset, header_of, prefix
from vcdl.wire.layout import Vector

_FLOAT32 = np.dtype("<f4")


def write_weights(path: Path, vector: Vector, header: str, *, durable: bool = False) -> None:
    """Write a weights file atomically.

    Args:
        path: The file.
        vector: The weights, shape (n,).
        header: Its JSON header.
        durable: Sync the file, so that it survives a power cut.

    Raises:
        OSError: It cannot be written; nothing remains.
    """
    write_dataset(path, WEIGHTS, [np.ascontiguousarray(vector, _FLOAT32).view(np.uint8).data], header, durable=durable)


def write_dataset(
    path: Path, dataset: Hdf5Dataset, parts: Sequence[bytes | memoryview], header: str, *, durable: bool = False
) -> None:
    """Write a file of the form vcdl.wire.hdf5_form atomically. Raises OSError.

    Args:
        path: The file.
        dataset: The kind of dataset.
        parts: The bytes of its data, in order.
        header: Its JSON header.
        durable: Sync the file, so that it survives a power cut.
    """
    start = _start(header, dataset, parts)
    with atomic_write(path, durable=durable) as temporary, temporary.open("wb") as file:
        file.write(start)
        file.writelines(parts)


def change_header(path: Path, dataset: Hdf5Dataset, sizes: range, change: Callable[[str], str]) -> None:
    """Replace the header of a file, which is not atomic: a kill meanwhile may damage the file.

    Args:
        path: The file.
        dataset: The kind of dataset that it must contain.
        sizes: The permitted numbers of elements.
        change: Gets the header and returns the new one.

    Raises:
        WeightsFileError, FileUnavailable: The file is damaged, or cannot be read on this machine.
        OSError: It cannot be written.
    """
    with open_dataset(path, dataset, sizes) as opened:
        opened.file.seek(opened.data_at)
        # The header's length moves the data, so the file is written anew behind it.
        data = opened.file.readall()
    start = _start(change(opened.header), dataset, [data])
    with path.open("r+b") as file:
        file.write(start)
        file.write(data)
        file.truncate()


def _start(header: str, dataset: Hdf5Dataset, parts: Sequence[bytes | memoryview]) -> bytes:
    """Return all bytes before the data of a file with this header and data."""
    text = header.encode()
    if len(text) > HEADER_LIMIT_BYTES:
        raise ValueError("the header of a weights file is limited to 60 000 bytes")
    return prefix(text, sum(len(part) for part in parts) // dataset.item_bytes, dataset)


def read_header(path: Path, size: int) -> str:
    """Return the header of a weights file without reading its weights.

    Args:
        path: The file.
        size: The number of weights that it must have.

    Raises:
        WeightsFileError: The file is damaged, or has another number of weights.
        FileUnavailable: The file cannot be read on this machine.
    """
    with open_weights(path, size) as file:
        return file.header


def read_weights(path: Path, size: int, out: Vector | None = None) -> tuple[Vector, str]:
    """Return the vector and the header of a weights file of exactly `size` numbers.

    If the header has a checksum, it is verified.

    Args:
        path: The file.
        size: The number of weights that it must have.
        out: Receives the weights and is returned; None for a new vector.

    Raises:
        WeightsFileError, FileUnavailable: The file is damaged, or cannot be read on this machine.
    """
    with open_weights(path, size) as file:
        vector = np.empty(size, np.float32) if out is None else out
        file.read(0, vector)
        return vector, file.header


class WeightsFile:
    """An open weights file whose form and size were checked; its weights are read by `read`, in any blocks."""

    def __init__(self, opened: "OpenedDataset", path: Path) -> None:
        self.header = opened.header
        self._file = opened.file
        self._path = path
        self._weights_at = opened.data_at
        self._size = opened.size
        self._named = checksum_in(opened.header)
        self._checksum, self._summed = Checksum(), 0
        """The checksum of the first `_summed` numbers, and how many these are."""

    def read(self, begin: int, out: Vector) -> None:
        """Read the weights from index `begin` on into `out`, until it is full.

        If the blocks are read in order, the checksum is verified with the last one.

        Raises:
            WeightsFileError, FileUnavailable: The file is damaged, or cannot be read on this machine.
        """
        missing = out.view(np.uint8).data
        try:
            self._file.seek(self._weights_at + 4 * begin)
            while missing and (got_bytes := self._file.readinto(missing)):
                missing = missing[got_bytes:]
        except OSError as error:
            raise weights_file_error(self._path, error) from error
        if missing:
            raise WeightsFileError(f"{self._path.name} lost {len(missing)} bytes while it was read")
        if not _FLOAT32.isnative:
            out.byteswap(inplace=True)
        if self._named:
            self._check(begin, out)

    def _check(self, begin: int, numbers: Vector) -> None:
        """Add a block that was read to the checksum, and verify the checksum after the last block."""
        if begin == 0:
            self._checksum, self._summed = Checksum(), 0
        # Only blocks in order are summed: a caller that reads a part of the weights gets no verdict.
        if begin != self._summed:
            return
        self._checksum.add(numbers, begin)
        self._summed += numbers.size
        if self._summed == self._size and self._checksum.text != self._named:
            raise WeightsFileError(f"{self._path.name} is damaged: its weights are not those that were written")


@contextmanager
def open_weights(path: Path, size: int) -> Iterator[WeightsFile]:
    """Open a weights file after checking its form, and that it has `size` numbers. The weights are not read yet.

    Raises:
        WeightsFileError, FileUnavailable: The file is damaged, or cannot be read on this machine.
    """
    with open_dataset(path, WEIGHTS, range(size, size + 1)) as opened:
        yield WeightsFile(opened, path)


@dataclass(frozen=True)
class OpenedDataset:
    """An open file of the form vcdl.wire.hdf5_form, whose data have not been read."""

    file: FileIO
    header: str
    data_at: int
    """Offset of the data, in bytes."""
    size: int
    """Number of elements."""


@contextmanager
def open_dataset(path: Path, dataset: Hdf5Dataset, sizes: range) -> Iterator[OpenedDataset]:
    """Open a file with a number of elements among `sizes`, after checking its form but not its data.

    Raises:
        WeightsFileError, FileUnavailable: The file has another form, or cannot be read on this machine.
    """
    try:
        with path.open("rb", buffering=0) as file:
            start = file.read(PREFIX_LIMIT_BYTES)
            text = header_of(start)
            size_bytes = os.fstat(file.fileno()).st_size
            data_at = len(prefix(text, sizes.start, dataset))
            # Compute the only size that fits the file's length, and compare the prefix for this size byte by byte.
            size = min(max((size_bytes - data_at) // dataset.item_bytes, sizes.start), sizes.stop - 1)
            expected = prefix(text, size, dataset)
            if not start.startswith(expected):
                raise WeightsFileError(
                    f"{path.name} ({size_bytes} bytes) is not {dataset.describe(sizes)}: "
                    "cut short, damaged, or of another model"
                )
            if size_bytes != data_at + dataset.item_bytes * size:
                raise WeightsFileError(
                    f"{path.name} has {size_bytes} bytes, its header says {data_at + dataset.item_bytes * size}: "
                    "cut short or damaged"
                )
            yield OpenedDataset(file, text.decode(), data_at, size)
    except OSError as error:
        raise weights_file_error(path, error) from error
    except UnicodeDecodeError as error:
        raise WeightsFileError(f"{path.name} cannot be read ({error})") from error
