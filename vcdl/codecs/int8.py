"""The codec int8: integers from −levels to levels, times a scale per block."""

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import Codec, block_count, check_length, from_planes, in_blocks, to_planes
from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Vector

MOST_LEVELS = 127
"""Most levels, because a signed byte holds no more."""


class Int8(Codec):
    """1 byte per number and 4 per block; error ≤ half a step, max |x| of the block / levels / 2."""

    def __init__(self, levels: int = MOST_LEVELS) -> None:
        """Set the number of steps from 0 to the largest magnitude of a block, 1 to 127. Raises ValueError."""
        if not 1 <= levels <= MOST_LEVELS:
            raise ValueError(f"{levels} levels")
        self._levels = levels

    @property
    def label(self) -> str:
        return f"int8({self._levels})"

    def encode(self, chunk: Vector) -> bytes:
        blocks = in_blocks(chunk, chunk.size)
        scales = np.abs(blocks).max(axis=1, initial=0.0) / np.float32(self._levels)
        # A block of zeros, or of numbers so small that their scale is 0, becomes zeros.
        steps = blocks / np.where(scales > 0, scales, np.float32(np.inf))[:, None]
        with np.errstate(invalid="ignore"):  # the scale of a block with a NaN is NaN, whatever its codes are
            codes = np.clip(np.rint(steps), -self._levels, self._levels).astype(np.int8)
        return to_planes(scales.astype("<f4", copy=False)) + codes.reshape(-1)[: chunk.size].tobytes()

    def decode(self, data: memoryview, out: Vector) -> None:
        check_length(data, self.most_bytes(out.size))
        count = block_count(out.size)
        scales: npt.NDArray[np.float32] = from_planes(data[: 4 * count], "<f4", count)
        levels = in_blocks(np.frombuffer(data[4 * count :], np.int8), out.size)
        # `signbit` refuses −0 as well. No encoder writes it, so each vector has one encoded form.
        if np.signbit(scales).any():
            raise WeightsFileError("a block has a negative scale: damaged")
        if levels.min(initial=0) < -self._levels or levels.max(initial=0) > self._levels:
            raise WeightsFileError(f"a code is beyond {self._levels} levels: damaged")
        codes = levels.astype(np.float32)
        # A scale may be infinite or NaN. The checks of uploads refuse the result.
        with np.errstate(over="ignore", invalid="ignore"):
            codes *= scales[:, None]
        out[:] = codes.reshape(-1)[: out.size]

    def most_bytes(self, size: int) -> int:
        return size + 4 * block_count(size)
