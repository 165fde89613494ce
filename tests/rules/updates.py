"""Vectors and uploads for tests of rules."""

from dataclasses import replace

import numpy as np

from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.measuring import MeasuringRule
from vcdl.wire.weights import Vector


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
        if isinstance(rule, MeasuringRule):
            brought = replace(brought, measured=Measured(1.0, 1.0))  # as long as usual
        weights.append(rule.apply(server, brought))
    return weights


def begun(rule: Rule, weights: Vector) -> Vector:
    """W and what a rule keeps beside it at a job's begin, as the rule is given them."""
    return rule.state.rows(rule.state.begun(weights.copy()))


def noise(seed: int, size: int) -> Vector:
    """A vector of standard normal numbers."""
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def replayed(rule: Rule, whole: Vector, update: Update) -> float:
    """Fold an upload into a store's whole vector as a server does, all of it at once; returns the weight given."""
    rows = rule.state.rows(whole)
    if isinstance(rule, MeasuringRule):
        step, lengths = rule.step(rows, update), rule.state.lengths_of(rule.state.tail_of(whole))
        length = np.float32(np.linalg.norm(step.astype(np.float64)))
        lengths[update.number % lengths.size] = length
        known = sorted(lengths[lengths > 0])
        update = replace(update, measured=Measured(float(length), float(known[(len(known) - 1) // 2])))
    return rule.apply(rows, update)
