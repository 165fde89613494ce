"""What the rules share: passing over long vectors once, the weighted mean of two of them, and what a client has learned."""

from collections.abc import Iterator

import numpy as np

from vcdl.rules.base import Update
from vcdl.weights import Vector

BLOCK = 1 << 16
"""Elements: 256 KiB of each vector and of what is computed stay in the second-level cache, so memory is passed over once."""


def blocks(size: int) -> Iterator[slice]:
    """The blocks of a vector of `size` elements."""
    for start in range(0, size, BLOCK):
        yield slice(start, min(size, start + BLOCK))


def scratch(size: int) -> Vector:
    """Room for what is computed on the way of one block of a vector of `size` elements."""
    return np.empty(min(BLOCK, size), np.float32)


def mix(server: Vector, client: Vector, weight: float, out: Vector) -> None:
    """`W ← (1 − weight)·W + weight·C`, all of shape (n,), into `out`, which may be `server`."""
    keep, give = np.float32(1.0 - weight), np.float32(weight)
    product = scratch(server.size)
    for block in blocks(server.size):
        new = out[block]
        p = product[: new.size]
        np.multiply(client[block], give, out=p)
        np.multiply(server[block], keep, out=new)
        np.add(new, p, out=new)


def weighted_step(update: Update, block: slice, weight: float, out: Vector) -> Vector:
    """`weight·(C − B)` of a block, in the first numbers of `out`; returns them."""
    base = update.started_from[block]
    step = out[: base.size]
    np.subtract(update.weights[block], base, out=step)
    np.multiply(step, np.float32(weight), out=step)
    return step
