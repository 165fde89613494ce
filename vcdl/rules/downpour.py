"""Downpour SGD, Dean et al. (2012), *Large Scale Distributed Deep Networks*."""

from typing import Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.numbers import AboveZero
from vcdl.wire.weights import Vector


class Downpour(Rule):
    """`W ← W + η·(C − B)`: add the client's step to the current W. Published: η = 1 (C − B contains the
    client's own learning rate).

    Steps of many clients with similar bases add up: with n at a time, η > 1/n overshoots. With B = W it is
    VC-ASGD, α = 1 − η. A partial update counts by its trained fraction: η is multiplied by it.
    """

    rule: Literal["downpour"] = "downpour"
    server_learning_rate: AboveZero = 0.1
    """η."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * update.fraction
        server += update.step * np.float32(weight)
        return weight
