"""Coordinate-wise trimmed mean of Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498, over a buffer."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch, weighted_step
from vcdl.rules.buffer import is_last, place
from vcdl.rules.fedasync import Damping
from vcdl.state import State
from vcdl.weights import Vector

_BLOCK = 1 << 13
"""Weights that are sorted at a time: with K = 10, the K steps of a block are in the processor's cache."""


@dataclass(frozen=True)
class TrimmedMean:
    """After each K updates `W ← W + η·mean(d)`, weight by weight without the b largest and the b smallest of the K steps `d = s(τ)·(C − B)`.

    It withstands b hostile updates among K; each weight is the mean of K − 2b, so that honest steps count in full. The source proves it for
    synchronous gradients, with b/K at least the hostile share. K − 1 vectors are kept: the steps that wait. With b = 0 it is FedBuff. A
    partial update counts by the fraction trained: its step is multiplied with it, as with s(τ).
    """

    needs_base: ClassVar[bool] = True

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    trim: int
    """b, with 2b < K."""
    damping: Damping
    """s"""

    @property
    def state(self) -> State:
        return State(vectors=self.buffer - 1)

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.rate * self.damping.factor(update.staleness) * update.fraction / self.buffer
        target, ends = server if out is None else out, is_last(update, self.buffer)
        # Without vectors in the state, W comes as such and not as a row.
        old, new = np.atleast_2d(server), np.atleast_2d(target)
        room = scratch(old.shape[-1])
        for block in blocks(old.shape[-1]):
            step = weighted_step(update, block, weight, room)
            if ends:
                self._move(old[:, block], step, new[:, block])
                continue
            if target is not server:
                np.copyto(new[:, block], old[:, block])
            np.copyto(new[1 + place(update, self.buffer), block], step)
        return weight

    def _move(self, old: Vector, step: Vector, new: Vector) -> None:
        """W by the steps that wait and by this one, each of them η/K times as long; then none waits."""
        kept = slice(self.trim, self.buffer - self.trim)
        whole = np.float32(self.buffer / (self.buffer - 2 * self.trim))
        for begin in range(0, step.size, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            steps = np.concatenate((old[1:, part], step[np.newaxis, part]))
            steps.sort(axis=0)
            np.add(old[0, part], steps[kept].sum(axis=0) * whole, out=new[0, part])
        new[1:].fill(0)
