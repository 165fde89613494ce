"""Downpour SGD, Dean et al. (2012), *Large Scale Distributed Deep Networks*."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Downpour:
    """`W ← W + η·(C − B)`: add the client's step to the current W. Published: η = 1 (C − B contains the
    client's own learning rate).

    Steps of many clients with similar bases add up: with n at a time, η > 1/n overshoots. With B = W it is
    VC-ASGD, α = 1 − η. A partial update counts by its trained fraction: η is multiplied by it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = STATELESS

    rate: float
    """η > 0."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * update.fraction
        server += update.step * np.float32(weight)
        return weight
