"""Rules that must know something of a whole upload before they fold any of it in."""

from abc import ABC, abstractmethod
from typing import ClassVar

from vcdl.checks.refusal import Refused
from vcdl.rules.base import Measured, Update
from vcdl.state import State
from vcdl.weights import Vector

LENGTHS = 50
"""Of the last updates that are remembered to know what is usual."""


class MeasuringRule(ABC):
    """A Rule that is given `Update.measured` when it applies, from a first pass over the upload."""

    needs_base: ClassVar[bool] = True

    @property
    def asks_held_out(self) -> bool:
        """Whether the step that held-out data would take must be there, for `Measured.cosine`."""
        return False

    @property
    @abstractmethod
    def state(self) -> State:
        """With LENGTHS lengths."""

    @abstractmethod
    def step(self, server: Vector, update: Update, out: Vector) -> None:
        """Write to `out`, shape (m,), what is measured of a block; `server` as `apply` gets it, and it is left as it is."""

    def refused(self, measured: Measured) -> Refused | None:
        """Why the upload must not count."""
        return None

    @abstractmethod
    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        """As Rule.apply."""


def shortening(measured: Measured, factor: float) -> float:
    """κ in (0, 1]: what a step is multiplied with so that it is at most `factor` times as long as usual."""
    limit = factor * measured.usual
    return 1.0 if measured.length <= limit else limit / measured.length
