"""Downpour SGD of Dean et al. (2012), *Large Scale Distributed Deep Networks*."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch, weighted_step
from vcdl.state import STATELESS, State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Downpour:
    """`W ← W + η·(C − B)`: what the client learned is added, wherever W is by now. Published: η = 1 (the client's own learning rate is in C − B).

    The deltas of many clients that started from like weights add up: with n at a time, η > 1/n goes too far. With B = W it is VC-ASGD,
    α = 1 − η. A partial update counts by the fraction trained: η is multiplied with it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = STATELESS

    rate: float
    """η > 0."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * update.fraction
        target = server if out is None else out
        room = scratch(server.size)
        for block in blocks(server.size):
            np.add(server[block], weighted_step(update, block, weight, room), out=target[block])
        return weight
