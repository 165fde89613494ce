"""Delayed Nesterov, Liu et al. (2024), *Asynchronous Local-SGD Training for Language Modeling*, arXiv 2401.09135."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class DelayedNesterov:
    """Each update moves W by its gradient part, `W ← W + η·d/K` with `d = s(τ)·(C − B)`; momentum is added at
    each K-th.

    At the K-th, with Δ the sum of the d's since the last: `m ← β·m + Δ/K`, `W ← W + η·(d/K + (1 − c·K +
    c)·β·m)`; at the others `W ← W + η·(d/K + c·β·m)`. Momentum applied with every stale update is what hurts
    asynchronous runs. Published: η = 0.7 and β = 0.9 as in DiLoCo, c = 0, s = 1. The state is two vectors:
    η·Δ/K and η·m. With β = 0 it is Downpour with the rate η/K, and with K = 1 an outer Nesterov step per
    update. A partial update counts by its trained fraction.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = RuleState(vectors=2)

    rate: float
    """η > 0."""
    momentum: float
    """β, in [0, 1)."""
    share: float
    """c, in [0, 1/K]: share of the momentum that each update applies."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s, the damping by staleness."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        ends = update.is_last_of(self.buffer)
        share = 1.0 - self.share * self.buffer + self.share if ends else self.share
        w, total, m = server
        step = update.step * np.float32(weight)
        total += step
        if ends:
            m *= np.float32(self.momentum)
            m += total
            total.fill(0)
        w += step + m * np.float32(share * self.momentum)
        return weight
