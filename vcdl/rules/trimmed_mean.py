"""Coordinate-wise trimmed mean, Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498,
over a buffer.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class TrimmedMean:
    """After each K updates `W ← W + η·mean(d)`: element-wise without the b largest and b smallest of the K
    steps `d = s(τ)·(C − B)`.

    It withstands b hostile updates among K. Each weight is the mean of K − 2b steps, so that honest steps count
    in full. The source proves it for synchronous gradients, with b/K at least the hostile share. The state is K
    − 1 vectors: the waiting steps. With b = 0 it is FedBuff. A partial update counts by its trained fraction:
    its step is multiplied by it, as by s(τ).
    """

    needs_base: ClassVar[bool] = True

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    trim: int
    """b, with 2b < K."""
    damping: Damping
    """s, the damping by staleness."""

    @property
    def state(self) -> RuleState:
        return RuleState(vectors=self.buffer - 1)

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        w, *waiting = np.atleast_2d(server)  # without vectors in the state, W comes flat and not as a row
        step = update.step * np.float32(weight)
        if not update.is_last_of(self.buffer):
            np.copyto(waiting[update.place_in(self.buffer)], step)
            return weight
        steps = np.sort([*waiting, step], axis=0)[self.trim : self.buffer - self.trim]
        w += steps.sum(axis=0) * np.float32(self.buffer / (self.buffer - 2 * self.trim))
        for vector in waiting:
            vector.fill(0)
        return weight
