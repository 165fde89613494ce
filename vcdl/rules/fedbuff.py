"""FedBuff, Nguyen et al. (2021), *Federated Learning with Buffered Asynchronous Aggregation*, arXiv 2106.06639."""

from typing import ClassVar, Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Damping, Polynomial
from vcdl.rules.numbers import AboveZero, Count
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector


class FedBuff(Rule):
    """After each K updates `W ← W + η·Σ s(τ)·(C − B)/K`; published: K = 10, s = (1 + τ)^−½.

    In between W does not change; the sum is the one vector of state. A partial update counts by its trained
    fraction: its C − B is multiplied by it.
    """

    state: ClassVar[RuleState] = RuleState(vectors=1)

    rule: Literal["fedbuff"] = "fedbuff"
    server_learning_rate: AboveZero = 1.0
    """η, the server's learning rate."""
    buffer: Count = 10
    """K, the number of updates in a buffer."""
    staleness: Damping = Polynomial()
    """s, the damping by staleness."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * self.staleness.factor(update.staleness) * update.fraction / self.buffer
        w, total = server
        # The sum is in the store, so a half-full buffer survives a kill, as W does.
        total += update.step * np.float32(weight)
        # By the update's number in the job, not a counter, so that recovery fills the same buffers.
        if update.is_last_of(self.buffer):
            w += total
            total.fill(0)
        return weight
