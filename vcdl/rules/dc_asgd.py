"""DC-ASGD of Zheng et al. (2017), *Asynchronous Stochastic Gradient Descent with Delay Compensation*, arXiv 1609.08326."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch
from vcdl.state import STATELESS, State
from vcdl.weights import Vector


@dataclass(frozen=True)
class DcAsgd:
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with the pseudo-gradient `g = B − C`; ⊙ is taken weight by weight.

    The second term corrects g for what W has become since B: g⊙g stands in for the Hessian's diagonal. With λ = 0, and with B = W, it is
    Downpour. Published is the rule for a true gradient G: λ₀ = 2, m = 0.95 (adaptive λ); nobody has published on pseudo-gradients. Theirs
    are shorter: of a client that takes steps of learning rate γ, g ≈ γ·ΣG, so that a published λ corresponds to about λ/γ here.

    λ is constant: the published adaptive one divides by a running mean of g⊙g. A partial update counts by the fraction trained: η is multiplied with it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = STATELESS

    rate: float
    """η > 0."""
    compensation: float
    """λ ≥ 0."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * update.fraction
        eta, lam, start = np.float32(weight), np.float32(self.compensation), update.started_from
        target = server if out is None else out
        gradient, correction = scratch(server.size), scratch(server.size)
        for block in blocks(server.size):
            w, base = server[block], start[block]
            g, c = gradient[: w.size], correction[: w.size]
            np.subtract(base, update.weights[block], out=g)
            np.subtract(w, base, out=c)
            np.multiply(c, g, out=c)
            np.multiply(c, g, out=c)
            np.multiply(c, lam, out=c)
            np.add(g, c, out=g)
            np.multiply(g, eta, out=g)
            np.subtract(w, g, out=target[block])
        return weight
