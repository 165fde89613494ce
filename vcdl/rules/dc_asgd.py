"""DC-ASGD, Zheng et al. (2017), *Asynchronous Stochastic Gradient Descent with Delay Compensation*, arXiv
1609.08326.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class DcAsgd:
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with the pseudo-gradient `g = B − C`; ⊙ is the element-wise product.

    The second term corrects g for the change of W since B: g⊙g approximates the Hessian's diagonal. With λ = 0,
    or with B = W, it is Downpour. The rule is published for a true gradient G: λ₀ = 2, m = 0.95 (adaptive λ);
    we know of nothing published on pseudo-gradients. True gradients are scaled differently: for a client with
    learning rate γ, g ≈ γ·ΣG, so a published λ corresponds to about λ/γ here.

    λ is constant: the published adaptive one divides by a running mean of g⊙g. A partial update counts by its
    trained fraction: η is multiplied by it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = STATELESS

    rate: float
    """η > 0."""
    compensation: float
    """λ ≥ 0."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.rate * update.fraction
        gradient = update.started_from - update.weights
        correction = (server - update.started_from) * gradient * gradient * np.float32(self.compensation)
        server -= (gradient + correction) * np.float32(weight)
        return weight
