"""VC-ASGD, Equation (1) of Atre, Jha, Rao (2021), *Distributed Deep Learning Using Volunteer Computing-Like Paradigm*."""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.course import Ramp
from vcdl.rules.base import Update
from vcdl.rules.blocks import mix
from vcdl.state import STATELESS, State
from vcdl.weights import Vector


@dataclass(frozen=True)
class VcAsgd:
    """`W ← α·W + (1 − α)·C`; published settings: α = 0.7, 0.95, 0.999, or `var`, α_e = e / (e + 1) in epoch e.

    Not published: an α that every update moves, from bold at the job's begin to careful at its end. A partial update counts by the
    fraction trained: 1 − α is multiplied with it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[State] = STATELESS

    alpha: float | Ramp | None
    """In [0, 1]; None stands for `var`."""

    def client_weight(self, update: Update) -> float:
        """(1 − α) · fraction."""
        if self.alpha is None:
            alpha = update.epoch / (update.epoch + 1)
        else:
            alpha = self.alpha.at(update.number) if isinstance(self.alpha, Ramp) else self.alpha
        return (1.0 - alpha) * update.fraction

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.client_weight(update)
        mix(server, update.weights, weight, server if out is None else out)
        return weight
