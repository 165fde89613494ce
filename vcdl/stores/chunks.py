"""Split vectors into chunks: Redis limits a value to 512 MB, MariaDB a packet to 16 MB; both are fastest well below.

A chunk is `chunk_bytes` of the vector's little-endian float32 numbers. The last one is shorter, and an empty vector has
none. A chunk is stored with a seal at its end: its checksum, generation and number.
"""

from collections.abc import Iterator

import numpy as np

from vcdl.wire.checksum import checksum_of
from vcdl.wire.layout import Vector

CHUNK_BYTES = 4 << 20
"""Bytes of a chunk, so that it fits a 16 MiB packet of MariaDB even if every byte must be escaped (twice the size).
Measured in Redis: 1 to 4 MiB are equally fast, 8 MiB half as fast."""


def chunk_count(size: int, chunk_bytes: int) -> int:
    """Return the number of chunks of a vector with `size` float32 numbers."""
    return -(-size * 4 // chunk_bytes)


def chunks(vector: Vector, chunk_bytes: int) -> Iterator[memoryview]:
    """Yield the chunks of a contiguous vector, in order, as views of its memory."""
    whole = vector.view(np.uint8).data
    for start in range(0, len(whole), chunk_bytes):
        yield whole[start : start + chunk_bytes]


def seal(chunk: memoryview, generation: str, number: int) -> bytes:
    """Return a chunk as it is stored: a copy with its seal at the end.

    Args:
        chunk: The chunk.
        generation: The name of the write that the chunk belongs to.
        number: The number of the chunk in the vector.
    """
    return b"".join([chunk, _seal(chunk, generation, number)])


def unseal(kept: bytes | None, size_bytes: int, generation: str, number: int) -> memoryview | None:
    """Return the chunk in a stored value without its seal, or None if it is missing, damaged or another chunk.

    Chunks without a seal were written by an earlier version of vcdl; only their length can be checked.
    """
    if kept is None or len(kept) < size_bytes:
        return None
    chunk, seal = memoryview(kept)[:size_bytes], kept[size_bytes:]
    # The seal contains generation and number, so that an undamaged chunk of another version or place does not pass.
    return chunk if not seal or seal == _seal(chunk, generation, number) else None


def _seal(chunk: memoryview, generation: str, number: int) -> bytes:
    return f"{checksum_of(np.frombuffer(chunk, np.float32))}{generation}{number:08x}".encode()
