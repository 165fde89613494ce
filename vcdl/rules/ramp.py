"""A number that changes over the updates of a job. Pure arithmetic."""

import math
from typing import Annotated, Literal

from pydantic import Field

from vcdl.rules.numbers import Fraction
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import Section

Shape = Literal["linear", "cosine"]


def interpolate(first: float, last: float, share: float, shape: Shape) -> float:
    """Return a number between `first` (at share 0) and `last` (at share 1).

    With the shape `cosine` it changes slowly at both ends and fast in the middle.
    """
    way = share if shape == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
    return (1.0 - way) * first + way * last


class Ramp(Section):
    """`{from: …, to: …}`: a number in [0, 1] that moves with every update of the job."""

    from_: Fraction = Field(alias="from")
    to: Fraction
    schedule: Annotated[Shape, kinds.one_of(Shape)] = "linear"

    def at(self, number: int, updates: int) -> float:
        """Return the value at update `number`, counted from 1, of a job of `updates` updates."""
        share = (number - 1) / max(1, updates - 1)
        # Numbers may exceed `updates`, because a restored store skips some.
        return interpolate(self.from_, self.to, min(1.0, max(0.0, share)), self.schedule)
