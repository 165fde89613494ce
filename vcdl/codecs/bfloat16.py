"""The codec bfloat16, the upper half of a float32: 8 significant bits and the whole range."""

import numpy as np

from vcdl.codecs.base import Codec, from_planes, to_planes
from vcdl.wire.layout import Vector

_LARGEST = np.array(0x7F7F0000, np.uint32).view(np.float32)


class BFloat16(Codec):
    """2 bytes per number, rounded to the nearest, ties to even; relative error ≤ 1/256."""

    @property
    def label(self) -> str:
        return "bfloat16"

    def encode(self, chunk: Vector) -> bytes:
        # Rounding up beyond the largest bfloat16 would give infinity.
        bits = np.clip(chunk, -_LARGEST, _LARGEST).view(np.uint32)
        # Adds half of the last kept bit, and one less where that bit is 0: ties go to even numbers.
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
        return to_planes((rounded >> np.uint32(16)).astype("<u2"))

    def decode(self, data: memoryview, out: Vector) -> None:
        out.view(np.uint32)[:] = from_planes(data, "<u2", out.size).astype(np.uint32) << np.uint32(16)

    def most_bytes(self, size: int) -> int:
        return 2 * size
