"""Folds whose outcome depends on their order, and what they make of version 0."""

import numpy as np

from tests.store_servers import SIZE
from vcdl.rules import Update, VcAsgd
from vcdl.stores import Fold
from vcdl.weights import Vector

_RULE = VcAsgd(0.9)


def weights(seed: int) -> Vector:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


def fold(number: int) -> Fold:
    def apply(server: Vector, staleness: int) -> float:
        return _RULE.apply(server, Update(weights(number + 1), 1, staleness, 10, 1.0))

    return Fold(f"e0001_s{number:03d}", f"j_e0001_s{number:03d}_a0_v000000", 0, apply)


def replayed(*numbers: int) -> Vector:
    """What version 0 becomes by these, in this order."""
    vector = weights(0)
    for number in numbers:
        fold(number).apply(vector, 0)
    return vector
