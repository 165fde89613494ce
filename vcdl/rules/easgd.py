"""EASGD, Zhang, Choromanska, LeCun (2015), *Deep learning with Elastic Averaging SGD*, arXiv 1412.6651, as the
VC-ASGD paper compares it.
"""

from typing import ClassVar, Literal

from vcdl.rules.base import Rule, Update, mix
from vcdl.rules.numbers import Part
from vcdl.wire.weights import Vector


class Easgd(Rule):
    """`W ← W + r·(C − W)`, the move of the centre. In the paper's comparison r = 0.001, which is VC-ASGD with α
    = 0.999.

    As in that comparison, the other half of EASGD is missing. Its clients keep weights of their own, pulled to
    the centre, while a volunteer's subtask starts from the centre itself. A partial update counts by its
    trained fraction: r is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    averages: ClassVar[bool] = True

    rule: Literal["easgd"] = "easgd"
    moving_rate: Part = 0.001
    """r."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.moving_rate * update.fraction
        mix(server, update.weights, weight)
        return weight
