"""Encode the values that top_k keeps in 2 bits each: a sign and one of two magnitudes.

The two magnitudes are the means of those in a block that lie below and above its mean magnitude. SparseLoCo
(arXiv 2508.15706) also sends 2 bits of each change. Without error feedback (vcdl.client.residual), what is rounded away
is lost.
"""

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import SCALE_BLOCK, Codec, block_count, check_length, from_planes, in_blocks, to_planes
from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Vector


class TwoBits(Codec):
    """Takes a quarter of a byte per number, and 8 bytes per block."""

    @property
    def label(self) -> str:
        return "two_bits"

    def encode(self, chunk: Vector) -> bytes:
        blocks, is_there = in_blocks(np.abs(chunk), chunk.size), in_blocks(np.ones(chunk.size, np.bool_), chunk.size)
        with np.errstate(over="ignore", invalid="ignore"):
            # Written so that NaN counts as large, and reaches the server, which refuses it.
            is_large = ~(blocks < _means(blocks, is_there)[:, None])
            sizes = [_means(blocks, is_there & part) for part in (~is_large, is_large)]
        codes = np.stack([chunk < 0, is_large.reshape(-1)[: chunk.size]], axis=1)
        return to_planes(np.concatenate(sizes).astype("<f4", copy=False)) + np.packbits(codes).tobytes()

    def decode(self, data: memoryview, out: Vector) -> None:
        check_length(data, self.most_bytes(out.size))
        count = block_count(out.size)
        sizes: npt.NDArray[np.float32] = from_planes(data[: 8 * count], "<f4", 2 * count)
        if (sizes < 0).any():
            raise WeightsFileError("a block has a negative size: damaged")
        bits = np.unpackbits(np.frombuffer(data[8 * count :], np.uint8), count=2 * out.size).reshape(-1, 2)
        out[:] = sizes[np.arange(out.size) // SCALE_BLOCK + count * bits[:, 1].astype(np.intp)]
        out[bits[:, 0] == 1] *= -1

    def most_bytes(self, size: int) -> int:
        return -(-size // 4) + 8 * block_count(size)


def _means(blocks: Vector, of: npt.NDArray[np.bool_]) -> Vector:
    """Return the mean of the selected numbers of each block, shape (blocks,); 0 where none is selected."""
    sums = np.where(of, blocks, 0).sum(axis=1, dtype=np.float64)
    return np.asarray(sums / np.maximum(1, np.count_nonzero(of, axis=1)), np.float32)
