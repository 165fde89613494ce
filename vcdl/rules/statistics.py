"""Rules for numbers that gradients do not train: statistics of batch normalisation and optimizers' moments.

These are averaged, whatever the rule does with the weights: a rule that moves beyond the clients' values could make a
variance negative.
"""

from dataclasses import dataclass

from vcdl.rules.base import Rule, Update, mix
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector

_SLOPE = 0.25
"""Damping per version of staleness: an upload of staleness 4 counts half, so that late uploads move statistics less."""


@dataclass(frozen=True)
class StatisticsMean:
    """Average statistics by `S ← S + m·(C − S)` with m = fraction / (1 + τ/4).

    This is roughly the mean of the uploads that arrive while a subtask is away.
    """

    state: RuleState
    """The state of the rule for the weights. Where it has numbers for statistics, these stay unchanged."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = update.fraction / (1.0 + _SLOPE * max(0, update.staleness))
        mix(server[0] if self.state.vectors else server, update.weights, weight)
        return weight


def on_statistics(rule: Rule) -> Rule | StatisticsMean:
    """Return the rule by which statistics and moments are averaged in a job with the given rule for weights.

    It is the rule itself if it always gives values between the server's and the client's (`Rule.averages`).
    """
    return rule if rule.averages else StatisticsMean(rule.state)
