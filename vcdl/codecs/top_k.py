"""The largest numbers of a vector, and zero for all others (sparsified updates: Aji and Heafield 2017, Stich et
al. 2018).

A host may keep the rest for its next update (the error feedback of those papers, vcdl.client.residual); else it is
lost. A chunk holds, for each kept number, the gap since the previous one and its float16.
"""

import math

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import CHUNK, Codec, from_planes
from vcdl.codecs.float16 import Float16
from vcdl.errors import WeightsFileError
from vcdl.wire.weights import Vector

_MORE = 255
"""Byte of a gap that continues in the next byte."""
_COUNT_BYTES = 4
_KEPT_BYTES = 3
"""A float16 and a gap."""
_FEWER = 20
"""A host with the slowest link sends a twentieth of what others send."""
_TINIEST = np.float32(2.0**-24)
"""The smallest positive number of float16."""


class TopK(Codec):
    """3 bytes for each kept number, and rarely one more. Hosts may send less than the share."""

    def __init__(self, share: float, sent: float | None = None) -> None:
        """`share` of the numbers to keep, in (0, 1]; `sent`: the share that a host with a slow link keeps, None: as
        much. Raises ValueError.
        """
        if not 0 < (sent or share) <= share <= 1:
            raise ValueError(f"a share of {share}")
        self._share, self._sent = share, sent or share
        self._values = Float16()

    @property
    def label(self) -> str:
        return f"top_k({self._share:g})"

    def thinned(self, vector: Vector, always: list[tuple[int, int]]) -> Vector:
        """Keep exactly the share that this host sends beside the parts `always`, or fewer if the rest is 0; among equal
        numbers the first.
        """
        sizes = np.abs(vector)
        sizes[sizes < _TINIEST] = 0.0
        sizes[np.isnan(sizes)] = np.inf  # NaN must not be lost: the server refuses it
        for begin, end in always:
            sizes[begin:end] = 0.0
        count = math.ceil(self._sent * (vector.size - sum(end - begin for begin, end in always)))
        thinned = np.zeros_like(vector)
        if count:
            least = np.partition(sizes, vector.size - count)[vector.size - count]
            kept = sizes > least
            kept[np.flatnonzero(sizes == least)[: count - np.count_nonzero(kept)]] = least > 0
            thinned[kept] = vector[kept]
        for begin, end in always:
            thinned[begin:end] = vector[begin:end]
        return thinned

    def within(self, size_bytes: float, vector_size: int) -> Codec:
        fits = size_bytes / (_KEPT_BYTES * max(1, vector_size))
        return TopK(self._share, min(self._share, max(self._share / _FEWER, fits)))

    def encode(self, chunk: Vector) -> bytes:
        places = np.flatnonzero(~(np.abs(chunk) < _TINIEST))  # NaN among them
        gaps = _gap_bytes(np.diff(places, prepend=-1) - 1)
        return len(places).to_bytes(_COUNT_BYTES, "little") + self._values.encode(chunk[places]) + gaps

    def decode(self, data: memoryview, out: Vector) -> None:
        count = int.from_bytes(data[:_COUNT_BYTES], "little")
        gaps_at = _COUNT_BYTES + 2 * count
        if count > out.size or len(data) < gaps_at:
            raise WeightsFileError(f"a chunk of {out.size} numbers says that it has {count}: damaged")
        places = _places(data[gaps_at:])
        if places.size != count or (count and places[-1] >= out.size):
            raise WeightsFileError(f"a chunk does not say where its {count} numbers belong: damaged")
        out[:] = 0.0
        out[places] = from_planes(data[_COUNT_BYTES:gaps_at], "<f2", count)

    def most_bytes(self, size: int) -> int:
        return _COUNT_BYTES + 3 * size

    def most_bytes_of(self, vector_size: int) -> int:
        chunks = -(-vector_size // CHUNK)
        kept = min(vector_size, math.ceil(self._share * vector_size))
        return chunks * _COUNT_BYTES + 3 * kept + vector_size // _MORE + chunks


def _gap_bytes(gaps: npt.NDArray[np.intp]) -> bytes:
    """Encode each gap as multiples of 255 and a final rest below 255."""
    ends = np.cumsum(gaps // _MORE + 1) - 1
    coded = np.full(ends[-1] + 1 if ends.size else 0, _MORE, np.uint8)
    coded[ends] = gaps % _MORE
    return coded.tobytes()


def _places(coded: memoryview) -> npt.NDArray[np.intp]:
    """Decode gaps into places in the chunk, which rise whatever the bytes are.

    Raises WeightsFileError when the last gap has no end.
    """
    numbers = np.frombuffer(coded, np.uint8)
    ends = np.flatnonzero(numbers != _MORE)
    if numbers.size and (not ends.size or ends[-1] != numbers.size - 1):
        raise WeightsFileError("a chunk ends in the middle of a gap: damaged")
    passed = np.cumsum(numbers, dtype=np.intp)[ends]
    return np.asarray(passed + np.arange(ends.size), np.intp)
