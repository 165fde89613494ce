"""Delayed Nesterov, Liu et al. (2024), *Asynchronous Local-SGD Training for Language Modeling*, arXiv 2401.09135."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ValidationInfo, field_validator

from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Constant, Damping
from vcdl.rules.numbers import AboveZero, Count, Fraction, Momentum
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


class DelayedNesterov(Rule):
    """Each update moves W by its gradient part, `W ← W + η·d/K` with `d = s(τ)·(C − B)`; momentum is added at
    each K-th.

    At the K-th, with Δ the sum of the d's since the last: `m ← β·m + Δ/K`, `W ← W + η·(d/K + (1 − c·K +
    c)·β·m)`; at the others `W ← W + η·(d/K + c·β·m)`. Momentum applied with every stale update is what hurts
    asynchronous runs. Published: η = 0.7 and β = 0.9 as in DiLoCo, c = 0, s = 1. The state is two vectors:
    η·Δ/K and η·m. With β = 0 it is Downpour with the rate η/K, and with K = 1 an outer Nesterov step per
    update. A partial update counts by its trained fraction.
    """

    state: ClassVar[RuleState] = RuleState(vectors=2)

    rule: Literal["delayed_nesterov"] = "delayed_nesterov"
    server_learning_rate: AboveZero = 0.7
    """η."""
    momentum: Momentum = 0.9
    """β."""
    buffer: Count = 10
    """K."""
    momentum_share: Fraction = 0.0
    """c, in [0, 1/K]: the fraction of the momentum that each of the other updates applies."""
    staleness: Damping = Constant()
    """s."""

    @field_validator("momentum_share")
    @classmethod
    def _is_no_more_than_all(cls, momentum_share: float, info: ValidationInfo) -> float:
        buffer = info.data.get("buffer", 1)
        if momentum_share * buffer > 1:
            raise ValueError(f"expected at most 1 / buffer, {1 / buffer:.4g}, got {momentum_share:g}")
        return momentum_share

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * self.staleness.factor(update.staleness) * update.fraction / self.buffer
        ends = update.is_last_of(self.buffer)
        share = 1.0 - self.momentum_share * self.buffer + self.momentum_share if ends else self.momentum_share
        w, total, m = server
        step = update.step * np.float32(weight)
        total += step
        if ends:
            m *= np.float32(self.momentum)
            m += total
            total.fill(0)
        w += step + m * np.float32(share * self.momentum)
        return weight
