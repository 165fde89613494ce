"""DiLoCo's outer optimizer, Douillard et al. (2023), *DiLoCo: Distributed Low-Communication Training of
Language Models*, arXiv 2311.08105.
"""

from typing import ClassVar, Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Constant, Damping
from vcdl.rules.numbers import AboveZero, Count, Momentum
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


class OuterNesterov(Rule):
    """After each K updates, with their mean `Δ = Σ s(τ)·(C − B)/K`: `m ← β·m + Δ`, `W ← W + η·(Δ + β·m)`.

    Published: η = 0.7, β = 0.9; all K clients start from one W and take 500 steps each, and s = 1. In the long
    run a step counts η/(1 − β) times, 7 times with these settings, which is too much for short subtasks. The
    state is two vectors: the sum of the parts of Δ, and η·m. With β = 0 it is FedBuff. A partial update counts
    by its trained fraction.
    """

    state: ClassVar[RuleState] = RuleState(vectors=2)

    rule: Literal["outer_nesterov"] = "outer_nesterov"
    server_learning_rate: AboveZero = 0.7
    """η."""
    momentum: Momentum = 0.9
    """β."""
    buffer: Count = 10
    """K."""
    staleness: Damping = Constant()
    """s."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * self.staleness.factor(update.staleness) * update.fraction / self.buffer
        beta = np.float32(self.momentum)
        w, total, m = server
        total += update.step * np.float32(weight)
        if update.is_last_of(self.buffer):
            m *= beta
            m += total
            w += m * beta + total
            total.fill(0)
        return weight
