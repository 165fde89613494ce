"""What a codec does: it turns a chunk of numbers into bytes and back.

An upload is what a client's training has changed, C − B with B as the client had it; a download is the weights themselves. Codecs do not
know which: both are a vector of float32.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError
from vcdl.weights import Vector

BLOCK = 256
"""Numbers with a scale or range in common, for codecs that have one: some bytes for each block, few beside 1 byte a number."""
CHUNK = 1 << 16
"""Numbers that are encoded at a time, each chunk by itself: 256 KiB as float32, which the second-level cache holds."""


class Codec(ABC):
    """One way of writing numbers down."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name and settings, as the header of an upload has them: only what has the same one is decoded."""

    @property
    def is_exact(self) -> bool:
        """Whether every bit comes back: then an upload is the weights themselves, and needs no base."""
        return False

    def thinned(self, vector: Vector, always: list[tuple[int, int]]) -> Vector:
        """What is kept of a vector of shape (n,), the rest as zeros; of the parts `always`, begin and end, nothing is dropped."""
        return vector

    @abstractmethod
    def encode(self, chunk: Vector) -> bytes:
        """At most `most_bytes` for finite numbers, shape (n,) with n ≤ CHUNK."""

    @abstractmethod
    def decode(self, data: memoryview, out: Vector) -> None:
        """The inverse, into `out` of shape (n,), finite or not. Raises WeightsFileError for bytes that `encode` cannot have made."""

    @abstractmethod
    def most_bytes(self, size: int) -> int:
        """The most that a chunk of `size` numbers may take; rises with `size`."""

    def most_bytes_of(self, vector_size: int) -> int:
        """The most that all chunks of a vector of so many numbers may take, some of which perhaps travel in another way."""
        whole, rest = divmod(vector_size, CHUNK)
        return whole * self.most_bytes(CHUNK) + self.most_bytes(rest)


def to_planes(numbers: npt.NDArray[Any]) -> bytes:
    """All lowest bytes of the numbers (little-endian, shape (n,)) first, then the next ones: what is alike lies side by side."""
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T).tobytes()


def from_planes(data: memoryview, kind: str, size: int) -> npt.NDArray[Any]:
    """The inverse: `size` numbers of a little-endian type such as `<f4`. Raises WeightsFileError."""
    width = np.dtype(kind).itemsize
    check_length(data, size * width)
    planes = np.frombuffer(data, np.uint8).reshape(width, size)
    return np.ascontiguousarray(planes.T).view(kind).reshape(size)


def in_blocks(numbers: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The first `size` numbers in rows of BLOCK, the last one filled up with zeros: a copy."""
    blocks = np.zeros((block_count(size), BLOCK), numbers.dtype)
    blocks.reshape(-1)[:size] = numbers[:size]
    return blocks


def block_count(size: int) -> int:
    """Of `size` numbers."""
    return -(-size // BLOCK)


def check_length(data: memoryview, expected: int) -> None:
    """Raises WeightsFileError."""
    if len(data) != expected:
        raise WeightsFileError(f"a chunk has {len(data)} bytes, {expected} are expected: damaged")
