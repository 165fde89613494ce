"""Delayed Nesterov of Liu et al. (2024), *Asynchronous Local-SGD Training for Language Modeling*, arXiv 2401.09135."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch, weighted_step
from vcdl.rules.buffer import is_last
from vcdl.rules.fedasync import Damping
from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class DelayedNesterov:
    """Every update moves W by its gradient part, `W ← W + η·d/K` with `d = s(τ)·(C − B)`; momentum waits for each K-th.

    At the K-th, with Δ the sum of the d's since the last: `m ← β·m + Δ/K`, `W ← W + η·(d/K + (1 − c·K + c)·β·m)`; at the others
    `W ← W + η·(d/K + c·β·m)`. Momentum that is applied with each stale update is what hurts asynchronous runs. Published: η = 0.7 and
    β = 0.9 as DiLoCo's, c = 0, s = 1. Two vectors are kept: η·Δ/K and η·m. With β = 0 it is Downpour with the rate η/K, and with K = 1 an
    outer Nesterov step for each update. A partial update counts by the fraction trained.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = State(vectors=2)

    rate: float
    """η > 0."""
    momentum: float
    """β, in [0, 1)."""
    share: float
    """c, in [0, 1/K]: of the momentum that is applied with each update."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s"""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        target, ends, beta = server if out is None else out, is_last(update, self.buffer), np.float32(self.momentum)
        part = 1.0 - self.share * self.buffer + self.share if ends else self.share
        push = np.float32(part * self.momentum)
        room, moved = scratch(server.shape[-1]), scratch(server.shape[-1])
        for block in blocks(server.shape[-1]):
            (w, total, m), (new, new_total, new_m) = server[:, block], target[:, block]
            step = weighted_step(update, block, weight, room)
            by = moved[: step.size]
            np.add(total, step, out=new_total)
            if ends:
                np.multiply(m, beta, out=new_m)
                np.add(new_m, new_total, out=new_m)
                new_total.fill(0)
            else:
                np.copyto(new_m, m)
            np.multiply(new_m, push, out=by)
            np.add(step, by, out=by)
            np.add(w, by, out=new)
        return weight
