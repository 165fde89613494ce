"""FedBuff, Nguyen et al. (2021), *Federated Learning with Buffered Asynchronous Aggregation*, arXiv 2106.06639."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class FedBuff:
    """After each K updates `W ← W + η·Σ s(τ)·(C − B)/K`; published: K = 10, s = (1 + τ)^−½.

    In between W stands still, and the sum is the one vector of state. With K = 1 and s = 1 it is Downpour. A
    partial update counts by its trained fraction: its C − B is multiplied by it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = RuleState(vectors=1)

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s, the damping by staleness."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        w, total = server
        total += update.step * np.float32(weight)
        if update.is_last_of(self.buffer):
            w += total
            total.fill(0)
        return weight
