"""A number that changes over the updates of a job. Pure arithmetic."""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["linear", "cosine"]


def between(first: float, last: float, share: float, shape: Shape) -> float:
    """Interpolate from `first` at share 0 to `last` at share 1; `cosine` is slow at both ends and fast in the
    middle.
    """
    way = share if shape == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
    return (1.0 - way) * first + way * last


@dataclass(frozen=True)
class Ramp:
    """A number that changes a little with every update of a job."""

    first: float
    """Value at the job's first update."""
    last: float
    """Value at its last update."""
    shape: Shape
    updates: int
    """Updates in the whole job."""

    def at(self, number: int) -> float:
        """Value at update `number`, counted from 1."""
        share = (number - 1) / max(1, self.updates - 1)
        return between(self.first, self.last, min(1.0, max(0.0, share)), self.shape)
