"""What rules do with numbers that no gradient moves: the statistics of batch normalisation and the moments of optimizers.

They are averaged, whatever the rule does with the weights: one that goes beyond what clients bring would make a variance negative.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from vcdl.rules.base import Rule, Update
from vcdl.rules.blocks import mix
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import FedAsync
from vcdl.rules.guarded import Guarded
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.state import State
from vcdl.weights import Vector

_SLOPE = 0.25


@dataclass(frozen=True)
class StatisticsMean:
    """`S ← S + m·(C − S)`, m = fraction / (1 + τ/4): the mean of about as many uploads as come while a subtask is away."""

    needs_base: ClassVar[bool] = False

    state: State
    """Of the rule for the weights, whose vectors have a place for statistics that is left as it is."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = update.fraction / (1.0 + _SLOPE * max(0, update.staleness))
        target = server if out is None else out
        if self.state.vectors:
            target[1:] = server[1:]
            server, target = server[0], target[0]
        mix(server, update.weights, weight, target)
        return weight


def on_statistics(rule: Rule) -> Rule:
    """The rule for statistics beside a rule for weights: itself, where W always comes to lie between W and C."""
    if isinstance(rule, Guarded):
        return replace(rule, rule=on_statistics(rule.rule))
    if isinstance(rule, VcAsgd | Easgd | FedAsync):
        return rule
    return StatisticsMean(rule.state)
