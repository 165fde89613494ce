"""Forecast averaging: clients start from where the averaged weights will be when they return (docs/decisions/014)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Forecast:
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

    needs_base: ClassVar[bool] = True
    state: ClassVar[RuleState] = RuleState(vectors=1)

    slope: float
    """a ≥ 0."""
    compensation: float
    """κ, in [0, 1]; above ½, a stale W oscillates ever wider."""
    memory: float
    """b ≥ 1: number of rounds of updates over which the movement is averaged."""
    horizon: float
    """h ≥ 0, in stalenesses; with 0, U is W."""

    def apply(self, server: Vector, update: Update) -> float:
        staleness = max(0, update.staleness)
        weight = update.fraction / (1.0 + self.slope * staleness)
        part = 1.0 / (self.memory * (staleness + 1.0))
        mixing, kappa = np.float32(weight), np.float32(self.compensation)
        keep, gain = np.float32(1.0 - part), np.float32(part * self.horizon * staleness)
        u, d = server
        w = u - d
        change = ((w - update.started_from) * kappa + update.weights - w) * mixing
        w += change
        d *= keep
        d += change * gain
        np.add(w, d, out=u)
        return weight
