"""DiLoCo's outer optimizer: Douillard et al. (2023), *DiLoCo: Distributed Low-Communication Training of Language Models*, arXiv 2311.08105."""

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
class OuterNesterov:
    """After each K updates, with their mean `Δ = Σ s(τ)·(C − B)/K`: `m ← β·m + Δ`, `W ← W + η·(Δ + β·m)`; published: η = 0.7, β = 0.9.

    There, all K clients start from one W and take 500 steps each, and s = 1; in the long run a step counts η/(1 − β) times, 7 times with
    these settings, which is too much for short subtasks. Two vectors are kept: the sum of the Δ's parts, and η·m. With β = 0 it is
    FedBuff. A partial update counts by the fraction trained.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = State(vectors=2)

    rate: float
    """η > 0."""
    momentum: float
    """β, in [0, 1)."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s"""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        target, ends, beta = server if out is None else out, is_last(update, self.buffer), np.float32(self.momentum)
        room = scratch(server.shape[-1])
        for block in blocks(server.shape[-1]):
            (w, total, m), (new, new_total, new_m) = server[:, block], target[:, block]
            step = weighted_step(update, block, weight, room)
            np.add(total, step, out=new_total)
            if ends:
                np.multiply(m, beta, out=new_m)
                np.add(new_m, new_total, out=new_m)
                np.multiply(new_m, beta, out=step)
                np.add(step, new_total, out=step)
                np.add(w, step, out=new)
                new_total.fill(0)
            else:
                np.copyto(new, w)
                np.copyto(new_m, m)
        return weight
