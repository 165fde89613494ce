"""VC-ASGD, Equation (1) of Atre, Jha, Rao (2021), *Distributed Deep Learning Using Volunteer Computing-Like
Paradigm*.
"""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.rules.base import Update, mix
from vcdl.rules.ramp import Ramp
from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class VcAsgd:
    """`W ← α·W + (1 − α)·C`; published: α = 0.7, 0.95, 0.999, or `var`, α_e = e / (e + 1) in epoch e.

    Ours is an α that changes with every update, from bold at the job's begin to careful at its end. A partial
    update counts by its trained fraction: 1 − α is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[RuleState] = STATELESS

    alpha: float | Ramp | None
    """α in [0, 1]; None stands for `var`."""

    def client_weight(self, update: Update) -> float:
        """(1 − α) · fraction."""
        if self.alpha is None:
            alpha = update.epoch / (update.epoch + 1)
        else:
            alpha = self.alpha.at(update.number) if isinstance(self.alpha, Ramp) else self.alpha
        return (1.0 - alpha) * update.fraction

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.client_weight(update)
        mix(server, update.weights, weight)
        return weight
