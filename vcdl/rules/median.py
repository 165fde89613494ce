"""Coordinate-wise median, Yin et al. (2018), *Byzantine-Robust Distributed Learning*, arXiv 1803.01498, over a
buffer.
"""

from dataclasses import dataclass
from typing import ClassVar

from vcdl.rules.base import Update
from vcdl.rules.fedasync import Damping
from vcdl.rules.state import RuleState
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Median:
    """After each K updates `W ← W + η·median(d)`, element-wise, of the K steps `d = s(τ)·(C − B)`.

    It withstands hostile updates as long as they are fewer than half of K. The median of an even number is the
    mean of the middle two. It is the trimmed mean with the most trimming, and moves less than the mean where
    steps are skewed. The state is K − 1 vectors. With K = 1 and s = 1 it is Downpour, with K = 2 FedBuff. A
    partial update counts by its trained fraction.
    """

    needs_base: ClassVar[bool] = True

    rate: float
    """η > 0."""
    buffer: int
    """K ≥ 1."""
    damping: Damping
    """s, the damping by staleness."""

    @property
    def state(self) -> RuleState:
        return self._trimmed.state

    def apply(self, server: Vector, update: Update) -> float:
        return self._trimmed.apply(server, update)

    @property
    def _trimmed(self) -> TrimmedMean:
        return TrimmedMean(self.rate, self.buffer, (self.buffer - 1) // 2, self.damping)
