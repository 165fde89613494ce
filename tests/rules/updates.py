"""Vectors and uploads for tests of rules."""

import numpy as np

from vcdl.rules import Update
from vcdl.weights import Vector


def vector(*numbers: float) -> Vector:
    """A vector of these weights."""
    return np.array(numbers, np.float32)


def update(weights: Vector, base: Vector | None = None, fraction: float = 1.0, staleness: int = 0) -> Update:
    """The upload of a client."""
    return Update(weights, 1, staleness, 100, fraction, number=1, base=base)


def noise(seed: int, size: int) -> Vector:
    """A vector of standard normal numbers."""
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)
