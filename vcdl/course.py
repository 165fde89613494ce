"""Numbers that move over the course of a job. Pure arithmetic: the same place in the job always gives the same number."""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["linear", "cosine"]
RateShape = Literal["constant", "linear", "cosine"]


def between(first: float, last: float, share: float, shape: Shape) -> float:
    """From `first` at share 0 to `last` at share 1; `cosine` is slow at both ends and fast in the middle."""
    way = share if shape == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
    return (1.0 - way) * first + way * last


@dataclass(frozen=True)
class Ramp:
    """A number that every update of a job moves a little."""

    first: float
    """At the job's first update."""
    last: float
    """At its last."""
    shape: Shape
    updates: int
    """Of the whole job."""

    def at(self, number: int) -> float:
        """For update `number`, from 1."""
        share = (number - 1) / max(1, self.updates - 1)
        return between(self.first, self.last, min(1.0, max(0.0, share)), self.shape)


@dataclass(frozen=True)
class RateCourse:
    """The learning rate by a subtask's place in the job, as a part of its peak: it rises evenly, then goes to `floor`."""

    shape: RateShape = "constant"
    warm_up: float = 0.0
    """Share of the subtasks until the peak."""
    floor: float = 0.0
    """What it goes to at the end, as a part of the peak; without a meaning for `constant`."""

    def at(self, place: int, subtasks: int) -> float:
        """For the subtask at `place`, from 0, of `subtasks`; > 0 and ≤ 1."""
        rising = self.warm_up * subtasks
        if place + 1 < rising:
            return (place + 1) / rising
        if self.shape == "constant":
            return 1.0
        share = (place - rising) / (subtasks - rising)
        return between(1.0, self.floor, min(1.0, max(0.0, share)), self.shape)


STEADY = RateCourse()
"""One rate for the whole job."""
