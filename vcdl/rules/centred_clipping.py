"""Centred clipping, Karimireddy, He, Jaggi (2021), *Learning from History for Byzantine Robust Optimization*,
arXiv 2012.10333.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.measuring import MeasuringRule, shortening
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class CentredClipping(MeasuringRule):
    """After each K updates `v ← v + Σ s(τ)·κ·(C − B − v)/K`, `W ← W + η·v`, with `κ = min(1, ρ / ‖C − B − v‖)`.

    v is the consensus of earlier updates; no single update can move it by more than ρ/K. Published: one pass
    with constant ρ (10 and 100 with normalised momentum). Here ρ is c times the median of the last 50 lengths
    ‖C − B − v‖. The length of a step depends on model and learning rate. The state is two vectors: v,
    and the sum that will move it. With K = 1 and no clipping it is Downpour. A partial update counts by its
    trained fraction: the rest of it counts as v.
    """

    state: ClassVar[RuleState] = RuleState(vectors=2, lengths=LENGTHS)

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    clip: float
    """c > 0."""
    damping: Damping
    """s, the damping by staleness."""

    def step(self, server: Vector, update: Update) -> Vector:
        step: Vector = update.step - server[1]
        return step

    def apply(self, server: Vector, update: Update) -> float:
        kappa = shortening(update.measures, self.clip)
        weight = self.damping.factor(update.staleness) * update.fraction * kappa / self.buffer
        w, v, total = server
        total += (update.step - v) * np.float32(weight)
        if update.is_last_of(self.buffer):
            v += total
            w += v * np.float32(self.rate)
            total.fill(0)
        return self.rate * weight
