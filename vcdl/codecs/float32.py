"""The exact codec: every bit of every number."""

from vcdl.codecs.base import Codec, from_planes, to_planes
from vcdl.wire.layout import Vector


class Float32(Codec):
    """4 bytes per number."""

    @property
    def label(self) -> str:
        return "float32"

    @property
    def is_exact(self) -> bool:
        return True

    def encode(self, chunk: Vector) -> bytes:
        return to_planes(chunk.astype("<f4", copy=False))

    def decode(self, data: memoryview, out: Vector) -> None:
        out[:] = from_planes(data, "<f4", out.size)

    def most_bytes(self, size: int) -> int:
        return 4 * size
