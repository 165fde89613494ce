"""EASGD of Zhang, Choromanska, LeCun (2015), *Deep learning with Elastic Averaging SGD*, arXiv 1412.6651, as VC-ASGD's paper compares it."""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.rules.base import Update
from vcdl.rules.blocks import mix
from vcdl.state import STATELESS, State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Easgd:
    """`W ← W + r·(C − W)`, the move of the centre; setting of the comparison: moving rate r = 0.001, which is VC-ASGD with α = 0.999.

    The other half of EASGD is left out, as in the comparison: its clients keep weights of their own and are pulled to the centre; a
    volunteer's subtask begins from the centre itself. A partial update counts by the fraction trained: r is multiplied with it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[State] = STATELESS

    moving_rate: float = 0.001
    """In (0, 1]."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.moving_rate * update.fraction
        mix(server, update.weights, weight, server if out is None else out)
        return weight
