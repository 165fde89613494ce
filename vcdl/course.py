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

LONG_STEPS = 7500
"""Steps one after another from which on a job is long: its clients' rate need not be raised (docs/decisions/019)."""


@dataclass(frozen=True)
class RateScaling:
    """What the learning rate is multiplied with because clients train at the same time."""

    times_clients: int = 1
    """Up to this, the number of clients at work: linear scaling (Goyal et al. 2017, arXiv 1706.02677)."""
    times_short: float = 1.0
    """Up to this, how much shorter than LONG_STEPS the job is: what ten clients do at the same time brings the weights as far as a few
    steps in a row do, so that a job of few epochs on many clients ends long before they have come to rest."""
    steps: int = 0
    """Of the optimizer, in all subtasks of the job."""

    def at(self, company: int, open_workunits: int) -> float:
        """With so many clients at work, and so many workunits open; ≥ 1."""
        in_a_row = self.steps / max(1, open_workunits)
        short = LONG_STEPS / in_a_row if in_a_row > 0 else 1.0
        return min(max(1, company), self.times_clients) * max(1.0, min(short, self.times_short))


UNSCALED = RateScaling()
"""The rate alone."""
