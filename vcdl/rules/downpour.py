"""Downpour SGD of Dean et al. (2012), *Large Scale Distributed Deep Networks*."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch
from vcdl.weights import Vector


@dataclass(frozen=True)
class Downpour:
    """`W ← W + η·(C − B)`: what the client learned is added, wherever W is by now. Published: η = 1 (the client's own learning rate is in C − B).

    The deltas of many clients that started from like weights add up: with n at a time, η > 1/n goes too far. With B = W it is VC-ASGD,
    α = 1 − η. A partial update counts by the fraction trained: η is multiplied with it.
    """

    needs_base: ClassVar[bool] = True

    rate: float
    """η > 0."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * update.fraction
        eta, base = np.float32(weight), update.started_from
        target = server if out is None else out
        step = scratch(server.size)
        for block in blocks(server.size):
            new = target[block]
            s = step[: new.size]
            np.subtract(update.weights[block], base[block], out=s)
            np.multiply(s, eta, out=s)
            np.add(server[block], s, out=new)
        return weight
