"""FedBuff of Nguyen et al. (2021), *Federated Learning with Buffered Asynchronous Aggregation*, arXiv 2106.06639."""

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
class FedBuff:
    """After each K updates `W ← W + η·Σ s(τ)·(C − B)/K`; published: K = 10, s = (1 + τ)^−½.

    Between them W stands still, and their sum is the one vector that is kept beside it. With K = 1 and s = 1 it is Downpour. A partial
    update counts by the fraction trained: its C − B is multiplied with it.
    """

    needs_base: ClassVar[bool] = True
    state: ClassVar[State] = State(vectors=1)

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s"""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        target, ends = server if out is None else out, is_last(update, self.buffer)
        room = scratch(server.shape[-1])
        for block in blocks(server.shape[-1]):
            (w, total), (new, new_total) = server[:, block], target[:, block]
            step = weighted_step(update, block, weight, room)
            np.add(total, step, out=new_total)
            if ends:
                np.add(w, new_total, out=new)
                new_total.fill(0)
            else:
                np.copyto(new, w)
        return weight
