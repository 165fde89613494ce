"""FedAsync of Xie, Koyejo, Gupta (2019), *Asynchronous Federated Optimization*, arXiv 1903.03934."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from vcdl.rules.base import Update
from vcdl.rules.blocks import mix
from vcdl.state import STATELESS, State
from vcdl.weights import Vector


class Damping(Protocol):
    """How much of the mixing rate is left to an update that is late."""

    def factor(self, staleness: int) -> float:
        """s(τ), in (0, 1]."""
        ...


@dataclass(frozen=True)
class Constant:
    """`s(τ) = 1`: lateness does not matter."""

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
    """`W ← (1 − a_τ)·W + a_τ·C` with `a_τ = a·s(τ)`; published settings: a = 0.6 or 0.9. With s = 1 it is VC-ASGD, α = 1 − a.

    a itself never changes: each update's a_τ is computed from it anew. A partial update counts by the fraction trained: a_τ is multiplied
    with it.
    """

    needs_base: ClassVar[bool] = False
    state: ClassVar[State] = STATELESS

    mixing: float
    """a, in (0, 1]."""
    damping: Damping
    """s"""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.mixing * self.damping.factor(update.staleness) * update.fraction
        mix(server, update.weights, weight, server if out is None else out)
        return weight
