"""The interface of a codec, which encodes a chunk of numbers as bytes and decodes it.

An upload contains the change made by a client's training, C − B with the client's own B; a download contains the
weights themselves. A codec does not know which: both are vectors of float32.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError
from vcdl.wire.weights import Vector

SCALE_BLOCK = 256
"""Numbers that share a scale or range, in codecs that have one: large enough that the few bytes per block cost little
against 1 byte per number, small enough that one outlier spoils only its neighbours."""
CHUNK = 1 << 16
"""Numbers in a chunk; chunks are encoded independently. 256 KiB as float32 fit into the second-level cache."""


class Codec(ABC):
    """One way of encoding numbers."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name and settings, as in an upload's header; an upload with another label is not decoded."""

    @property
    def is_exact(self) -> bool:
        """Whether decoding restores every bit: then an upload contains the weights themselves and needs no base."""
        return False

    def thinned(self, vector: Vector, always: list[tuple[int, int]]) -> Vector:
        """Return a vector with the numbers that the codec drops set to zero.

        Args:
            vector: Shape (n,).
            always: Ranges (begin, end) that are kept whole.
        """
        return vector

    def within(self, size_bytes: float, vector_size: int) -> "Codec":
        """Return a variant of about `size_bytes` for a vector, within this codec's bounds; this codec can decode it."""
        return self

    @abstractmethod
    def encode(self, chunk: Vector) -> bytes:
        """Encode finite numbers, shape (n,) with n ≤ CHUNK, into at most `most_bytes`."""

    @abstractmethod
    def decode(self, data: memoryview, out: Vector) -> None:
        """Decode into `out`, shape (n,); the numbers may be infinite or NaN, which the checks refuse.

        Raises:
            WeightsFileError: `encode` cannot have written these bytes.
        """

    @abstractmethod
    def most_bytes(self, size: int) -> int:
        """Return an upper bound on the bytes of a chunk of `size` numbers; it grows with `size`."""

    def most_bytes_of(self, vector_size: int) -> int:
        """Return an upper bound on the bytes of all chunks of a vector, even if another codec encodes some numbers."""
        whole, rest = divmod(vector_size, CHUNK)
        return whole * self.most_bytes(CHUNK) + self.most_bytes(rest)


def to_planes(numbers: npt.NDArray[Any]) -> bytes:
    """Sort the bytes of little-endian numbers, shape (n,), by significance, lowest first.

    Similar bytes become neighbours, which compress better.
    """
    # High bytes (sign and exponent) are alike from number to number. In one plane deflate's run-length search finds
    # such runs.
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T).tobytes()


def from_planes(data: memoryview, kind: str, size: int) -> npt.NDArray[Any]:
    """Invert `to_planes` for `size` numbers of a little-endian type such as `<f4`. Raises WeightsFileError."""
    width = np.dtype(kind).itemsize
    check_length(data, size * width)
    planes = np.frombuffer(data, np.uint8).reshape(width, size)
    return np.ascontiguousarray(planes.T).view(kind).reshape(size)


def in_blocks(numbers: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return a copy of the first `size` numbers in rows of SCALE_BLOCK, the last row padded with zeros."""
    blocks = np.zeros((block_count(size), SCALE_BLOCK), numbers.dtype)
    blocks.reshape(-1)[:size] = numbers[:size]
    return blocks


def block_count(size: int) -> int:
    """Return the number of blocks of SCALE_BLOCK for `size` numbers."""
    return -(-size // SCALE_BLOCK)


def check_length(data: memoryview, expected: int) -> None:
    """Check the length of a chunk. Raises WeightsFileError."""
    if len(data) != expected:
        raise WeightsFileError(f"a chunk has {len(data)} bytes, {expected} are expected: damaged")
