"""The codec float16, IEEE 754 half precision: 11 significant bits, from 6e-8 to 65504."""

import numpy as np

from vcdl.codecs.base import Codec, from_planes, to_planes
from vcdl.wire.layout import Vector

_LARGEST = 65504.0
"""The largest float16, because larger numbers would become infinite."""


class Float16(Codec):
    """2 bytes per number; relative error ≤ 1/2048, absolute ≤ 3e-8 near zero. Numbers beyond ±65504 are clipped."""

    @property
    def label(self) -> str:
        return "float16"

    def encode(self, chunk: Vector) -> bytes:
        return to_planes(np.clip(chunk, -_LARGEST, _LARGEST).astype("<f2"))

    def decode(self, data: memoryview, out: Vector) -> None:
        out[:] = from_planes(data, "<f2", out.size)

    def most_bytes(self, size: int) -> int:
        return 2 * size
