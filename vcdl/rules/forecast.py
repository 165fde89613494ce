"""Forecast averaging: clients start from where the averaged weights will be when they return (docs/decisions/014)."""

from typing import Annotated, ClassVar, Literal

import numpy as np

from vcdl.rules.base import Rule, Update
from vcdl.rules.numbers import Fraction, NotNegative
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector
from vcdl.yaml_schema import values as kinds


class Forecast(Rule):
    """The shared weights are U = W + D: the mean W, and its expected movement while a subtask is away.

        Δ = m·(C + κ·(W − B) − W)    m = fraction / (1 + a·τ)
        D ← β·D + (1 − β)·h·τ·Δ      β = 1 − 1/(b·(τ + 1))
        W ← W + Δ

    Averaging the uploads of τ + 1 clients that start from W drags it back to their start. Even in directions
    where all agree, it moves 1/(τ + 1) of one client's way. Clients that start from U start where W will be,
    and nothing drags it back. Where they disagree, Δ has zero mean, and so has D. κ carries over the others'
    progress since B, which a late upload lacks. All numbers follow the update's own staleness. With τ = 0 the
    rule takes the client's weights unchanged, which is serial training; a very late update counts for little.
    The state is one vector: D.

    Prediction of weights over the staleness of a pipeline: Chen et al. (2018), *SpecTrain*, arXiv 1809.02839.
    The prediction from an average's movement and κ are ours and unpublished; docs/experiments/accuracy.md has
    the settings.
    """

    state: ClassVar[RuleState] = RuleState(vectors=1)

    rule: Literal["forecast"] = "forecast"
    staleness_damping: NotNegative = 0.15
    """a: how much less an upload counts for each version of staleness."""
    compensation: Fraction = 0.2
    """κ; above ½, a stale W oscillates ever wider."""
    averaging_window: Annotated[float, kinds.at_least(1)] = 2.0
    """b: number of rounds of updates over which the movement is averaged."""
    horizon: NotNegative = 1.0
    """h, in stalenesses; with 0, U is W."""

    def apply(self, server: Vector, update: Update) -> float:
        staleness = max(0, update.staleness)
        weight = update.fraction / (1.0 + self.staleness_damping * staleness)
        part = 1.0 / (self.averaging_window * (staleness + 1.0))
        mixing, kappa = np.float32(weight), np.float32(self.compensation)
        # All factors as float32, since one float64 would turn the whole block into a float64 copy.
        keep, gain = np.float32(1.0 - part), np.float32(part * self.horizon * staleness)
        u, d = server
        # The store keeps U, which clients start from and which is evaluated. W follows from the two rows.
        w = u - d
        change = ((w - update.started_from) * kappa + update.weights - w) * mixing
        w += change
        d *= keep
        d += change * gain
        np.add(w, d, out=u)
        return weight
