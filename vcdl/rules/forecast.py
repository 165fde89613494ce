"""Forecast averaging: averaging whose clients start from where the weights will be when they come back (docs/decisions/014)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch
from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Forecast:
    """The shared weights are U = W + D: the mean W, and how far it is expected to move while a subtask is away.

        Δ = m·(C + κ·(W − B) − W)    m = fraction / (1 + a·τ)
        D ← β·D + (1 − β)·h·τ·Δ      β = 1 − 1/(b·(τ + 1))
        W ← W + Δ

    Averaging the uploads of τ + 1 clients that start from W drags it back towards where they began: it goes 1/(τ + 1) of the way that one
    client goes, in directions where all of them agree, too. From U they begin where W will be, and nothing is dragged back; where they
    do not agree, Δ has no mean and D none either. κ brings over what others did since B, of which an upload that comes late knows
    nothing. Every number follows the update's own staleness: without any (τ = 0) the rule takes the client's weights as they are, which
    is serial training, and an update that is very late counts for little. One vector is kept: D.

    Weights predicted over the staleness of a pipeline: Chen et al. (2018), *SpecTrain*, arXiv 1809.02839; that they come from the movement of an
    average, and κ, are ours. Nothing is published on it: the settings are those of docs/experiments/accuracy.md.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = State(vectors=1)

    slope: float
    """a ≥ 0."""
    compensation: float
    """κ, in [0, 1]; above ½, a stale W swings ever wider."""
    memory: float
    """b ≥ 1: over how many rounds of updates the movement is averaged."""
    horizon: float
    """h ≥ 0, in stalenesses; with 0, W is all there is."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        staleness = max(0, update.staleness)
        weight = update.fraction / (1.0 + self.slope * staleness)
        part = 1.0 / (self.memory * (staleness + 1.0))
        mixing, kappa = np.float32(weight), np.float32(self.compensation)
        keep, gain = np.float32(1.0 - part), np.float32(part * self.horizon * staleness)
        target, base = server if out is None else out, update.started_from
        mean, change = scratch(server.shape[-1]), scratch(server.shape[-1])
        for block in blocks(server.shape[-1]):
            (u, d), (new_u, new_d) = server[:, block], target[:, block]
            w, delta = mean[: u.size], change[: u.size]
            np.subtract(u, d, out=w)
            np.subtract(w, base[block], out=delta)
            np.multiply(delta, kappa, out=delta)
            np.add(delta, update.weights[block], out=delta)
            np.subtract(delta, w, out=delta)
            np.multiply(delta, mixing, out=delta)
            np.add(w, delta, out=w)
            np.multiply(delta, gain, out=delta)
            np.multiply(d, keep, out=new_d)
            np.add(new_d, delta, out=new_d)
            np.add(w, new_d, out=new_u)
        return weight
