"""Vectors and uploads for tests of rules."""

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.wire.layout import Vector


def vector(*numbers: float) -> Vector:
    """A vector of these weights."""
    return np.array(numbers, np.float32)


def update(
    weights: Vector, base: Vector | None = None, fraction: float = 1.0, staleness: int = 0, number: int = 1
) -> Update:
    """The upload of a client; `number`: of the update in the job."""
    return Update(
        weights=weights, epoch=1, staleness=staleness, samples=100, fraction=fraction, number=number, base=base
    )


def steps(rule: Rule, server: Vector, *deltas: Vector, first: int = 1) -> list[float]:
    """Fold uploads in whose C − B are `deltas`, one after the other; returns the weights given."""
    weights = []
    for number, delta in enumerate(deltas, start=first):
        brought = update(delta, np.zeros_like(delta), number=number)
        weights.append(rule.apply(server, brought))
    return weights


def begun(rule: Rule, weights: Vector) -> Vector:
    """W and what a rule keeps beside it at a job's begin, as the rule is given them."""
    return rule.state.rows(rule.state.initial(weights.copy()))


def noise(seed: int, size: int) -> Vector:
    """A vector of standard normal numbers."""
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)
