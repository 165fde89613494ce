"""Coordinate-wise trimmed mean over a buffer.

Source: Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Constant, Damping
from vcdl.rules.numbers import AboveZero, Count
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector
from vcdl.yaml_schema import values as kinds


class TrimmedMean(Rule):
    """Trim the b largest and b smallest steps per element, then apply `W ← W + η·mean(d)` after each K updates.

    The steps are `d = s(τ)·(C − B)`. The rule withstands b hostile updates among K. Each weight is the mean of K − 2b
    steps, so that honest steps count in full. The source proves it for synchronous gradients, with b/K at least the
    hostile share. The state is K − 1 vectors: the waiting steps. With b = 0 it is FedBuff. A partial update counts by
    its trained fraction: its step is multiplied by it, as by s(τ).
    """

    rule: Literal["trimmed_mean"] = "trimmed_mean"
    server_learning_rate: AboveZero = 1.0
    """η, the server's learning rate."""
    buffer: Count = 10
    """K, the number of updates in a buffer."""
    trim: Annotated[int, kinds.whole(0)] = Field(default=2, validate_default=True)
    """b, the updates left out at each end; 2b < K."""
    staleness: Damping = Constant()
    """s, the damping by staleness."""

    @field_validator("trim")
    @classmethod
    def _leaves_some(cls, trim: int, info: ValidationInfo) -> int:
        # `buffer` is missing if it was itself refused, and then that message is enough.
        buffer = info.data.get("buffer", 2 * trim + 1)
        if 2 * trim >= buffer:
            raise ValueError(f"expected less than half of the buffer of {buffer}, got {trim}")
        return trim

    @property
    def state(self) -> RuleState:
        return RuleState(vectors=self.buffer - 1)

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * self.staleness.factor(update.staleness) * update.fraction / self.buffer
        w, *waiting = np.atleast_2d(server)  # without vectors in the state, W has shape (n,)
        step = update.step * np.float32(weight)
        # The update's number determines a waiting step's place, so that recovery fills the buffer in the same way.
        if not update.is_last_of(self.buffer):
            np.copyto(waiting[update.place_in(self.buffer)], step)
            return weight
        steps = np.sort([*waiting, step], axis=0)[self.trim : self.buffer - self.trim]
        # `weight` divides by K, but only K − 2b steps are in the sum: the factor makes it their mean.
        w += steps.sum(axis=0) * np.float32(self.buffer / (self.buffer - 2 * self.trim))
        for vector in waiting:
            vector.fill(0)
        return weight
