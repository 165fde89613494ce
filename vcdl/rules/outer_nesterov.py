"""DiLoCo's outer optimizer, Douillard et al. (2023), *DiLoCo: Distributed Low-Communication Training of
Language Models*, arXiv 2311.08105.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class OuterNesterov:
    """After each K updates, with their mean `Δ = Σ s(τ)·(C − B)/K`: `m ← β·m + Δ`, `W ← W + η·(Δ + β·m)`.

    Published: η = 0.7, β = 0.9; all K clients start from one W and take 500 steps each, and s = 1. In the long
    run a step counts η/(1 − β) times, 7 times with these settings, which is too much for short subtasks. The
    state is two vectors: the sum of the parts of Δ, and η·m. With β = 0 it is FedBuff. A partial update counts
    by its trained fraction.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = RuleState(vectors=2)

    rate: float
    """η > 0."""
    momentum: float
    """β, in [0, 1)."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s, the damping by staleness."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        beta = np.float32(self.momentum)
        w, total, m = server
        total += update.step * np.float32(weight)
        if update.is_last_of(self.buffer):
            m *= beta
            m += total
            w += m * beta + total
            total.fill(0)
        return weight
