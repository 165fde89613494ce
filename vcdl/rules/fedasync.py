"""FedAsync, Xie, Koyejo, Gupta (2019), *Asynchronous Federated Optimization*, arXiv 1903.03934."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from vcdl.rules.base import Update, mix
from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.weights import Vector


class Damping(Protocol):
    """The share of the mixing rate that a late update keeps."""

    def factor(self, staleness: int) -> float:
        """s(τ), in (0, 1]."""
        ...


@dataclass(frozen=True)
class Constant:
    """`s(τ) = 1`: staleness does not matter."""

    def factor(self, staleness: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Polynomial:
    """`s(τ) = (τ + 1)^−p`; published: p = 0.5."""

    exponent: float = 0.5

    def factor(self, staleness: int) -> float:
        return float((max(0, staleness) + 1.0) ** -self.exponent)


@dataclass(frozen=True)
class Hinge:
    """`s(τ) = 1` up to τ = b, then `1 / (a·(τ − b) + 1)`; published: a = 10, b = 4."""

    slope: float = 10.0
    """a"""
    free: int = 4
    """b, in versions."""

    def factor(self, staleness: int) -> float:
        return 1.0 / (self.slope * max(0, staleness - self.free) + 1.0)


@dataclass(frozen=True)
class FedAsync:
    """`W ← (1 − a_τ)·W + a_τ·C` with `a_τ = a·s(τ)`; published: a = 0.6 or 0.9. With s = 1 it is VC-ASGD, α = 1
    − a.

    a itself never changes. A partial update counts by its trained fraction: a_τ is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[RuleState] = STATELESS

    mixing: float
    """a, in (0, 1]."""
    damping: Damping
    """s, the damping by staleness."""

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.mixing * self.damping.factor(update.staleness) * update.fraction
        mix(server, update.weights, weight)
        return weight
