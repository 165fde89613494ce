"""Coordinate-wise median, Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498."""

from typing import Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.numbers import AboveZero, Count
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector


class Median(Rule):
    """After each K updates `W ← W + η·median(C − B)`, element-wise, of the K steps.

    It withstands hostile updates as long as they are fewer than half of K. The state is K − 1 vectors: the steps that
    wait. A partial update counts by its trained fraction: its step is multiplied by it.
    """

    rule: Literal["median"] = "median"
    server_learning_rate: AboveZero = 1.0
    """η."""
    buffer: Count = 10
    """K."""

    @property
    def state(self) -> RuleState:
        return RuleState(vectors=self.buffer - 1)

    def apply(self, server: Vector, update: Update) -> float:
        w, *waiting = np.atleast_2d(server)  # without vectors in the state, W comes flat and not as a row
        step = update.step * np.float32(update.fraction)
        if update.is_last_of(self.buffer):
            w += np.median([*waiting, step], axis=0).astype(np.float32) * np.float32(self.server_learning_rate)
        else:
            np.copyto(waiting[update.place_in(self.buffer)], step)
        return self.server_learning_rate * update.fraction / self.buffer
