"""Represent samples that stay on the disk and are read block by block, instead of an array of shape (n, …)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcdl.wire.inputs import InputShape, sample_shape

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.intp]


class Encoded(NamedTuple):
    """The JPEG files of samples that are sent as pictures instead of numbers."""

    read: Callable[[int], Iterator[Sequence[bytes]]]
    """Returns an iterator over the contents of the source's files, starting with the sample of this number."""
    size_bytes: npt.NDArray[np.int64]
    """Bytes of each file, shape (n,)."""


@dataclass(frozen=True)
class Numbers:
    """Range and moments of all numbers of an input, for each entry of its last axis (see `width_of`)."""

    low: Array
    high: Array
    whole: bool
    """Whether all numbers are integers."""
    mean: Array | None = None
    """Mean of each entry; None: neither mean nor `deviation` was measured."""
    deviation: Array | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """A lazy, array-like view of a source's samples, or of a subset of them, in the source's order.

    It has a shape and a dtype like an array, but samples are read from the source only on access.
    """

    read: Callable[[int], Iterator[Array]]
    """Returns an iterator over the source's samples, in blocks, starting with the sample of this number.

    It may be called repeatedly, and always yields the same samples.
    """
    source_count: int
    """Number of samples of the whole source."""
    sample_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Number type of the samples in shards: the smallest that holds all numbers."""
    numbers: Numbers
    """Facts about the numbers of the whole source."""
    sha256: str
    """Checksum of the numbers of the whole source."""
    chosen: Indices | None = None
    """Numbers of these samples in the source, ascending; None: all samples."""

    encoded: Encoded | None = None
    """The JPEG files that are sent instead of numbers; None: numbers are sent."""

    are_labels: bool = False
    """Whether these samples are the labels of an autoencoder."""

    def __len__(self) -> int:
        return self.source_count if self.chosen is None else len(self.chosen)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.sample_shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def sample_bytes(self) -> int:
        return int(np.prod(self.sample_shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def places(self) -> Indices:
        """Numbers of these samples in the source, ascending."""
        return np.arange(self.source_count) if self.chosen is None else self.chosen

    @property
    def content(self) -> str:
        """SHA-256 that identifies these samples, computed without reading them."""
        if self.chosen is None:
            return self.sha256
        # Hash the numbers of the samples instead of the samples, which would have to be read again.
        return hashlib.sha256(self.sha256.encode() + np.ascontiguousarray(self.chosen, np.int64).data).hexdigest()

    def source_blocks(self, begin: int = 0) -> Iterator[Array]:
        """Yield all samples of the source from a place on, in the number type of shards."""
        for block in self.read(begin):
            yield block.astype(self.dtype, copy=False)

    def blocks_to_write(self, begin: int) -> Iterator[Array]:
        """Yield the samples of the whole source as they are sent, starting with number `begin`.

        A block of JPEG files is an array of objects (`bytes`), shape (n,).
        """
        if self.encoded is None:
            yield from self.source_blocks(begin)
            return
        for files in self.encoded.read(begin):
            # Fill an array of objects: np.array would make a fixed-width type of the bytes, which drops trailing zeros.
            block = np.empty(len(files), object)
            block[:] = files
            yield block

    def only(self, some: Indices) -> "Rows":
        """Select the samples at these ascending indices, without reading them."""
        return replace(self, chosen=self.places[some])

    def first(self, count: int) -> Array:
        """Return the first `count` samples, or all if there are fewer."""
        return self.take(np.arange(min(count, len(self))))

    def take(self, some: Indices) -> Array:
        """Read the samples at these ascending indices from the source."""
        wanted = self.places[some]
        found, at = [], 0
        for block in self.source_blocks():
            # The numbers ascend, so a block's share is a slice, and reading can stop after the last of them.
            inside = wanted[np.searchsorted(wanted, at) : np.searchsorted(wanted, at + len(block))]
            if len(inside):
                found.append(block[inside - at])
            at += len(block)
            if not len(wanted) or at > wanted[-1]:
                break
        return np.concatenate(found) if found else np.empty((0, *self.sample_shape), self.dtype)


Inputs = Array | Rows
"""Inputs as an array in memory, or on the disk, from which they are read block by block."""


def first_of(x: Inputs, count: int) -> Array:
    """Return the first `count` samples, or all if there are fewer."""
    return x.first(count) if isinstance(x, Rows) else x[:count]


def in_memory(x: Inputs) -> Array:
    """Return samples that are an array already. Raises TypeError for others, which is a bug in vcdl."""
    if isinstance(x, Rows):
        raise TypeError("samples that are not in memory cannot be taken as an array: this is a bug in vcdl")
    return x


def shape_of(x: Inputs) -> InputShape:
    """Return the shape of one sample."""
    return x.sample_shape if isinstance(x, Rows) else sample_shape(x)
