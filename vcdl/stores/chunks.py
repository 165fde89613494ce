"""A vector in chunks: a value of Redis is limited to 512 MB, a packet of MariaDB to 16 MB, and both are fastest well
below.

A chunk is `chunk_bytes` of the vector's little-endian float32; the last one is shorter, and an empty vector has none.
It is kept with a seal behind it: its checksum, and which chunk of which generation it is.
"""

from collections.abc import Iterator

import numpy as np

from vcdl.wire.checksum import checksum_of
from vcdl.wire.weights import Vector

CHUNK_BYTES = 4 << 20
"""Fits a 16 MiB packet of MariaDB even when every byte must be escaped (twice the size). Measured in Redis: 1 to 4
MiB are equally fast, 8 MiB half as fast."""


def chunk_count(size: int, chunk_bytes: int) -> int:
    """The number of chunks of a vector of `size` float32."""
    return -(-size * 4 // chunk_bytes)


def chunks(vector: Vector, chunk_bytes: int) -> Iterator[memoryview]:
    """The chunks of a contiguous vector, in order: views of its memory, not copies."""
    whole = vector.view(np.uint8).data
    for start in range(0, len(whole), chunk_bytes):
        yield whole[start : start + chunk_bytes]


def sealed(chunk: memoryview, generation: str, number: int) -> bytes:
    """A chunk as it is kept: a copy, with its seal."""
    return b"".join([chunk, _seal(chunk, generation, number)])


def opened(kept: bytes | None, size_bytes: int, generation: str, number: int) -> memoryview | None:
    """The chunk of so many bytes in what was kept of it; None: it is gone, or not what was written.

    One without a seal is of an earlier version of vcdl, and only its length is known.
    """
    if kept is None or len(kept) < size_bytes:
        return None
    chunk, seal = memoryview(kept)[:size_bytes], kept[size_bytes:]
    return chunk if not seal or seal == _seal(chunk, generation, number) else None


def _seal(chunk: memoryview, generation: str, number: int) -> bytes:
    return f"{checksum_of(np.frombuffer(chunk, np.float32))}{generation}{number:08x}".encode()
