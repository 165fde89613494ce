"""EASGD, Zhang, Choromanska, LeCun (2015), *Deep learning with Elastic Averaging SGD*, arXiv 1412.6651, as the
VC-ASGD paper compares it.
"""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.rules.base import Update, mix
from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Easgd:
    """`W ← W + r·(C − W)`, the move of the centre. In the paper's comparison r = 0.001, which is VC-ASGD with α
    = 0.999.

    As in that comparison, the other half of EASGD is missing. Its clients keep weights of their own, pulled to
    the centre, while a volunteer's subtask starts from the centre itself. A partial update counts by its
    trained fraction: r is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[RuleState] = STATELESS

    moving_rate: float = 0.001
    """r, in (0, 1]."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.moving_rate * update.fraction
        mix(server, update.weights, weight)
        return weight
