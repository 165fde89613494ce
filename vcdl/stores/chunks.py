"""A vector in chunks: values of Redis end at 512 MB, packets of MariaDB at 16 MB, and both are fastest well below.

A chunk is `chunk_bytes` of the vector's little-endian float32, the last one shorter; an empty vector has none.
"""

from collections.abc import Iterator

import numpy as np

from vcdl.weights import Vector

CHUNK_BYTES = 4 << 20
"""Fits a 16 MiB packet of MariaDB even when every byte of it must be escaped (twice the size). Measured:
1 to 4 MiB are equally fast in Redis, and 8 MiB are half as fast."""


def chunk_count(size: int, chunk_bytes: int) -> int:
    """How many chunks a vector of `size` float32 has."""
    return -(-size * 4 // chunk_bytes)


def chunks(vector: Vector, chunk_bytes: int) -> Iterator[memoryview]:
    """The chunks of a contiguous vector, in order: views of its memory, not copies."""
    whole = vector.view(np.uint8).data
    for start in range(0, len(whole), chunk_bytes):
        yield whole[start : start + chunk_bytes]
