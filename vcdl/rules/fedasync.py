"""FedAsync, Xie, Koyejo, Gupta (2019), *Asynchronous Federated Optimization*, arXiv 1903.03934."""

from typing import ClassVar, Literal

from vcdl.rules.base import Rule, Update, mix
from vcdl.rules.damping import Damping, Polynomial
from vcdl.rules.numbers import Part
from vcdl.wire.weights import Vector


class FedAsync(Rule):
    """`W ← (1 − a_τ)·W + a_τ·C` with `a_τ = a·s(τ)`; published: a = 0.6 or 0.9. With s = 1 it is VC-ASGD, α = 1
    − a.

    a itself never changes. A partial update counts by its trained fraction: a_τ is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    averages: ClassVar[bool] = True

    rule: Literal["fedasync"] = "fedasync"
    mixing: Part = 0.6
    """a."""
    staleness: Damping = Polynomial()
    """s."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.mixing * self.staleness.factor(update.staleness) * update.fraction
        mix(server, update.weights, weight)
        return weight
