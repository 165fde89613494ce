"""The interface of a codec, which encodes a chunk of numbers as bytes and decodes it.

If the codec is not exact, an upload contains the change made by a client's training, C − B, where B are the weights
that the client started from. A download contains the weights themselves. For a codec both are vectors of float32.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Vector

SCALE_BLOCK = 256
"""Numbers that share a scale or range, in codecs that have one: large enough that the few bytes per block cost little
against 1 byte per number, small enough that one outlier spoils only its neighbours."""
CHUNK = 1 << 16
"""Numbers in a chunk; chunks are encoded independently. 256 KiB as float32 fit into the second-level cache."""


class Codec(ABC):
    """One way of encoding numbers. A codec has no state, so any server can decode any client's upload."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name and settings as text for an upload's header; an upload with another label is refused."""

    @property
    def is_exact(self) -> bool:
        """Whether decoding gives the same bits. Uploads then contain the weights and not differences to their base."""
        return False

    def thinned(self, vector: Vector, always: list[tuple[int, int]]) -> Vector:
        """Return a vector in which the numbers that the codec does not send are zero; by default the vector itself.

        It is called once for a whole vector, before its chunks are encoded.

        Args:
            vector: The vector, shape (n,).
            always: Ranges (begin, end) in which all numbers are sent.
        """
        return vector

    def within(self, size_bytes: float, vector_size: int) -> "Codec":
        """Return a codec that encodes a vector in about `size_bytes`, as far as this codec's settings permit.

        This codec can decode what it encodes. By default it is this codec itself.

        Args:
            size_bytes: The wanted size of the encoded vector.
            vector_size: Number of numbers in the vector.
        """
        return self

    @abstractmethod
    def encode(self, chunk: Vector) -> bytes:
        """Encode finite numbers, shape (n,) with n ≤ CHUNK, into at most `most_bytes`."""

    @abstractmethod
    def decode(self, data: memoryview, out: Vector) -> None:
        """Decode a chunk of n numbers into `out`, shape (n,). They may be infinite or NaN, which later checks refuse.

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
    """Return the bytes of little-endian numbers, shape (n,), sorted by significance: first the lowest byte of each.

    So similar bytes become neighbours, which compress better.
    """
    # High bytes (sign and exponent) are alike from number to number. In one plane deflate's run-length search finds
    # such runs.
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T).tobytes()


def from_planes(data: memoryview, kind: str, size: int) -> npt.NDArray[Any]:
    """Return the `size` numbers, of a little-endian type such as `<f4`, that `to_planes` has written into `data`.

    Raises:
        WeightsFileError: The data has another length.
    """
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
    """Raise WeightsFileError if a chunk has not the expected number of bytes."""
    if len(data) != expected:
        raise WeightsFileError(f"a chunk has {len(data)} bytes, {expected} are expected: damaged")
