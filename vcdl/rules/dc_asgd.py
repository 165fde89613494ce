"""DC-ASGD, Zheng et al. (2017), *Asynchronous Stochastic Gradient Descent with Delay Compensation*, arXiv
1609.08326.
"""

from typing import Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.numbers import AboveZero, NotNegative
from vcdl.wire.weights import Vector


class DcAsgd(Rule):
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with the pseudo-gradient `g = B − C`; ⊙ is the element-wise product.

    The second term corrects g for the change of W since B: g⊙g approximates the Hessian's diagonal. With λ = 0,
    or with B = W, it is Downpour. The rule is published for a true gradient G: λ₀ = 2, m = 0.95 (adaptive λ);
    we know of nothing published on pseudo-gradients. True gradients are scaled differently: for a client with
    learning rate γ, g ≈ γ·ΣG, so a published λ corresponds to about λ/γ here.

    λ is constant: the published adaptive one divides by a running mean of g⊙g. A partial update counts by its
    trained fraction: η is multiplied by it.
    """

    rule: Literal["dc_asgd"] = "dc_asgd"
    server_learning_rate: AboveZero = 0.1
    """η."""
    compensation: NotNegative = 2.0
    """λ."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.server_learning_rate * update.fraction
        gradient = update.started_from - update.weights
        correction = (server - update.started_from) * gradient * gradient * np.float32(self.compensation)
        server -= (gradient + correction) * np.float32(weight)
        return weight
