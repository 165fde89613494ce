"""Centred clipping of Karimireddy, He, Jaggi (2021), *Learning from History for Byzantine Robust Optimization*, arXiv 2012.10333."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcdl.rules.base import Update
from vcdl.rules.blocks import blocks, scratch
from vcdl.rules.buffer import is_last
from vcdl.rules.fedasync import Damping
from vcdl.rules.measuring import LENGTHS, MeasuringRule, shortening
from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class CentredClipping(MeasuringRule):
    """After each K updates `v ← v + Σ s(τ)·κ·(C − B − v)/K`, `W ← W + η·v`, with `κ = min(1, ρ / ‖C − B − v‖)`.

    v is what the K updates before have agreed on; no single update can move it by more than ρ/K. Published: one pass, ρ constant (10 and
    100 with normalised momentum); here ρ is c times the median of the last 50 lengths ‖C − B − v‖, as the length of a step depends on model
    and learning rate. Two vectors are kept: v, and the sum of what will move it. With K = 1 and nothing clipped it is Downpour. A partial
    update counts by the fraction trained: the rest of it counts as v.
    """

    state: ClassVar[State] = State(vectors=2, lengths=LENGTHS)

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    clip: float
    """c > 0."""
    damping: Damping
    """s"""

    def step(self, server: Vector, update: Update, out: Vector) -> None:
        np.subtract(update.weights, update.started_from, out=out)
        np.subtract(out, server[1], out=out)

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        kappa = shortening(update.measures, self.clip)
        weight = self.damping.factor(update.staleness) * update.fraction * kappa / self.buffer
        target, ends, base = server if out is None else out, is_last(update, self.buffer), update.started_from
        eta, share, room = np.float32(self.rate), np.float32(weight), scratch(server.shape[-1])
        for block in blocks(server.shape[-1]):
            (w, v, total), (new, new_v, new_total) = server[:, block], target[:, block]
            step = room[: w.size]
            np.subtract(update.weights[block], base[block], out=step)
            np.subtract(step, v, out=step)
            np.multiply(step, share, out=step)
            np.add(total, step, out=new_total)
            if ends:
                np.add(v, new_total, out=new_v)
                np.multiply(new_v, eta, out=step)
                np.add(w, step, out=new)
                new_total.fill(0)
            else:
                np.copyto(new, w)
                np.copyto(new_v, v)
        return self.rate * weight
