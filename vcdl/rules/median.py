"""Coordinate-wise median of Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498, over a buffer."""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Median:
    """After each K updates `W ← W + η·median(d)`, weight by weight, of the K steps `d = s(τ)·(C − B)`.

    It withstands hostile updates as long as fewer than half of K are; the median of an even number is the mean of the two in the middle. It
    is the trimmed mean that trims most, and moves less than the mean where steps are skewed. K − 1 vectors are kept. With K = 1 and s = 1
    it is Downpour, with K = 2 FedBuff. A partial update counts by the fraction trained.
    """

    needs_base: ClassVar[bool] = True

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s"""

    @property
    def state(self) -> State:
        return self._trimmed.state

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        return self._trimmed.apply(server, update, out)

    @property
    def _trimmed(self) -> TrimmedMean:
        return TrimmedMean(self.rate, self.buffer, (self.buffer - 1) // 2, self.damping)
