"""The codec top_k: the largest numbers of a vector, and zero for all others."""

import math

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import CHUNK, SCALE_BLOCK, Codec
from vcdl.codecs.float16 import Float16
from vcdl.codecs.two_bits import TwoBits
from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Vector

_MORE = 255
"""Byte of a gap that continues in the next byte, so that most gaps take one byte."""
_COUNT_BYTES = 4
"""Bytes for the count of numbers in a chunk."""
_FEWER = 20
"""Divisor of the share for a host with the slowest link, so that its updates still count."""
_TINIEST = np.float32(2.0**-24)
"""The smallest positive number of float16."""


class TopK(Codec):
    """Sends the numbers of largest magnitude, each with its value and one byte of position (rarely two).

    Hosts with a slow link may send a smaller share of the numbers, which the same codec decodes.
    """

    def __init__(self, share: float, two_bits: bool = False, sent: float | None = None) -> None:
        """Set which numbers are kept.

        Args:
            share: The share of numbers to keep, in (0, 1].
            two_bits: Send kept numbers in 2 bits instead of float16.
            sent: The share that this host keeps because of its slow link, at most `share`; None for the same.

        Raises:
            ValueError: A share is out of range.
        """
        if not 0 < (sent or share) <= share <= 1:
            raise ValueError(f"a share of {share}")
        self._share, self._sent, self._two_bits = share, sent or share, two_bits
        self._values: Codec = TwoBits() if two_bits else Float16()

    @property
    def label(self) -> str:
        return f"top_k({self._share:g},2)" if self._two_bits else f"top_k({self._share:g})"

    def thinned(self, vector: Vector, always: list[tuple[int, int]]) -> Vector:
        """Return a copy in which all numbers are zero except the share of largest magnitude, and the ranges `always`.

        Fewer are kept if all others round to 0. Of equal magnitudes the first ones are kept.
        """
        sizes = np.abs(vector)
        # float16 would round these to zero, and sending zeros wastes their place.
        sizes[sizes < _TINIEST] = 0.0
        sizes[np.isnan(sizes)] = np.inf  # NaN must not be lost: the server refuses it
        for begin, end in always:
            sizes[begin:end] = 0.0
        count = math.ceil(self._sent * (vector.size - sum(end - begin for begin, end in always)))
        thinned = np.zeros_like(vector)
        if count:
            # A partition is enough: only the bound matters, and sorting millions of numbers is slow.
            least = np.partition(sizes, vector.size - count)[vector.size - count]
            kept = sizes > least
            kept[np.flatnonzero(sizes == least)[: count - np.count_nonzero(kept)]] = least > 0
            thinned[kept] = vector[kept]
        for begin, end in always:
            thinned[begin:end] = vector[begin:end]
        return thinned

    def within(self, size_bytes: float, vector_size: int) -> Codec:
        kept_bytes = 1 + self._values.most_bytes(SCALE_BLOCK) / SCALE_BLOCK
        # A byte for the gap and the value: what one kept number takes.
        fits = size_bytes / (kept_bytes * max(1, vector_size))
        return TopK(self._share, self._two_bits, min(self._share, max(self._share / _FEWER, fits)))

    def encode(self, chunk: Vector) -> bytes:
        places = np.flatnonzero(~(np.abs(chunk) < _TINIEST))  # NaN among them
        gaps = _gap_bytes(np.diff(places, prepend=-1) - 1)
        return len(places).to_bytes(_COUNT_BYTES, "little") + self._values.encode(chunk[places]) + gaps

    def decode(self, data: memoryview, out: Vector) -> None:
        count = int.from_bytes(data[:_COUNT_BYTES], "little")
        gaps_at = _COUNT_BYTES + self._values.most_bytes(count)
        if count > out.size or len(data) < gaps_at:
            raise WeightsFileError(f"a chunk of {out.size} numbers says that it has {count}: damaged")
        places = _places(data[gaps_at:])
        if places.size != count or (count and places[-1] >= out.size):
            raise WeightsFileError(f"a chunk does not say where its {count} numbers belong: damaged")
        values = np.empty(count, np.float32)
        self._values.decode(data[_COUNT_BYTES:gaps_at], values)
        out[:] = 0.0
        out[places] = values

    def most_bytes(self, size: int) -> int:
        return _COUNT_BYTES + self._values.most_bytes(size) + size

    def most_bytes_of(self, vector_size: int) -> int:
        chunks = -(-vector_size // CHUNK)
        kept = min(vector_size, math.ceil(self._share * vector_size))
        values = self._values.most_bytes(kept) + chunks * self._values.most_bytes(1)
        return chunks * _COUNT_BYTES + values + kept + vector_size // _MORE + chunks


def _gap_bytes(gaps: npt.NDArray[np.intp]) -> bytes:
    """Encode each gap in bytes of 255, which add up, and a last byte below 255."""
    ends = np.cumsum(gaps // _MORE + 1) - 1
    coded = np.full(ends[-1] + 1 if ends.size else 0, _MORE, np.uint8)
    coded[ends] = gaps % _MORE
    return coded.tobytes()


def _places(coded: memoryview) -> npt.NDArray[np.intp]:
    """Return the positions in the chunk that encoded gaps give. They increase strictly, even if the bytes are hostile.

    Raises:
        WeightsFileError: The last gap is incomplete.
    """
    numbers = np.frombuffer(coded, np.uint8)
    ends = np.flatnonzero(numbers != _MORE)
    if numbers.size and (not ends.size or ends[-1] != numbers.size - 1):
        raise WeightsFileError("a chunk ends in the middle of a gap: damaged")
    passed = np.cumsum(numbers, dtype=np.intp)[ends]
    return np.asarray(passed + np.arange(ends.size), np.intp)
