"""The codec of optimizer moments: a sign and a logarithm, in steps between the extreme magnitudes of each block.

    q = 1 + round(126 · (log₂|x| − low) / (high − low)),   decoded: ± 2^(low + (q − 1)·(high − low)/126);   q = 0 for 0

Moments differ by orders of magnitude from one weight to the next, and steps are divided by the root of second
moments. So each must be accurate to some per cent, and none but 0 may become 0. (Proportional steps as in the
dynamic quantisation of Dettmers et al. 2022, but with a range per block.)
"""

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import Codec, block_count, check_length, from_planes, in_blocks, to_planes
from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Vector

_LEVELS = 126
"""Steps of the logarithmic scale: 7 bits without the code for 0."""
_SIGN = 128
"""The bit of a code that contains the sign."""
_HIGHEST = np.nextafter(np.float32(128), np.float32(0))
"""Largest logarithm that is stored: that of the largest float32 may be rounded up to 128, which decodes to infinity."""
_LOWEST = np.float32(-149)
"""The logarithm of the smallest float32."""


class Logarithmic(Codec):
    """1 byte per number and 8 per block.

    The error is at most half a step: 2^(octaves of the block / 252) − 1, which is 6 % for 20 octaves.
    """

    @property
    def label(self) -> str:
        return "logarithmic"

    def encode(self, chunk: Vector) -> bytes:
        blocks = in_blocks(chunk, chunk.size)
        is_zero = blocks == 0
        logs = np.minimum(np.log2(np.abs(blocks), where=~is_zero, out=np.zeros_like(blocks)), _HIGHEST)
        low = np.where(is_zero, np.float32(np.inf), logs).min(axis=1, initial=np.inf)
        high = np.where(is_zero, np.float32(-np.inf), logs).max(axis=1, initial=-np.inf)
        low, high = (np.where(np.isfinite(low), edge, 0).astype(np.float32) for edge in (low, high))
        # A block of equal magnitudes has no range to divide by. All its codes are then the first step.
        steps = _LEVELS / np.maximum(high - low, np.float32(1e-6))
        codes = 1 + np.clip(np.rint((logs - low[:, None]) * steps[:, None]), 0, _LEVELS).astype(np.uint8)
        codes += np.uint8(_SIGN) * (blocks < 0)
        # Only an exact zero gets this code: a moment that became 0 would make its weight leap (decision 015).
        codes[is_zero] = 0
        edges = np.concatenate([low, high]).astype("<f4", copy=False)
        return to_planes(edges) + bytes(codes.reshape(-1)[: chunk.size])

    def decode(self, data: memoryview, out: Vector) -> None:
        check_length(data, self.most_bytes(out.size))
        count = block_count(out.size)
        edges: npt.NDArray[np.float32] = from_planes(data[: 8 * count], "<f4", 2 * count)
        low, high = edges[:count, None], edges[count:, None]
        if not ((low >= _LOWEST) & (low <= high) & (high <= _HIGHEST)).all():  # NaN among them
            raise WeightsFileError("a block has a range of logarithms that no numbers have: damaged")
        codes = in_blocks(np.frombuffer(data[8 * count :], np.uint8), out.size)
        if (codes == _SIGN).any():
            raise WeightsFileError("a code stands for a negative zero: damaged")
        levels = (codes & np.uint8(_SIGN - 1)).astype(np.float32)
        # Limit to the block's largest magnitude: if that is float32's largest, rounding would give infinity.
        numbers = np.exp2(np.minimum(low + (levels - 1) * ((high - low) / np.float32(_LEVELS)), high))
        numbers[codes >= _SIGN] *= -1
        numbers[levels == 0] = 0
        out[:] = numbers.reshape(-1)[: out.size]

    def most_bytes(self, size: int) -> int:
        return size + 8 * block_count(size)
