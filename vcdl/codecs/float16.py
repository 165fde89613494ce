"""IEEE 754 half precision: 11 significant bits, from 6e-8 to 65504."""

import numpy as np

from vcdl.codecs.base import Codec, from_planes, to_planes
from vcdl.weights import Vector

_LARGEST = 65504.0


class Float16(Codec):
    """2 bytes a number; an error of at most 1/2048 of it, or 3e-8. What is larger than 65504 becomes that."""

    @property
    def label(self) -> str:
        return "float16"

    def encode(self, chunk: Vector) -> bytes:
        return to_planes(np.clip(chunk, -_LARGEST, _LARGEST).astype("<f2"))

    def decode(self, data: memoryview, out: Vector) -> None:
        out[:] = from_planes(data, "<f2", out.size)

    def most_bytes(self, size: int) -> int:
        return 2 * size
