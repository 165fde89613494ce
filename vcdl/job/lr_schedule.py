"""The learning rate of a subtask, by its place in the job and the number of parallel clients. Pure arithmetic."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from vcdl.rules.ramp import between

RateShape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class LrSchedule:
    """The learning rate as a fraction of its peak: an even warm-up, then the way to `end_factor`."""

    shape: RateShape = "constant"
    warmup: float = 0.0
    """Fraction of the job's subtasks before the peak."""
    end_factor: float = 0.0
    """Fraction of the peak at the job's end; `constant` does not use it."""

    def at(self, place: int, subtasks: int) -> float:
        """The factor of the subtask at `place`, from 0, of `subtasks`: > 0 and ≤ 1."""
        rising = self.warmup * subtasks
        if place + 1 < rising:
            return (place + 1) / rising
        if self.shape == "constant":
            return 1.0
        fraction = (place - rising) / (subtasks - rising)
        return between(1.0, self.end_factor, min(1.0, max(0.0, fraction)), self.shape)


STEADY = LrSchedule()
"""One rate for the whole job."""

USUAL_BOOST = 3.0
"""The highest factor by which a short job's rate is raised where nothing was tried (docs/decisions/019)."""
LONG_STEPS = 7500
"""Sequential optimizer steps from which on a job counts as long and its rate is not raised (docs/decisions/019)."""
MOST_BOOST = 16.0
"""The highest factor that a trial tries: at twice as much some jobs collapse (docs/decisions/101)."""
_DAMPING = 0.15
"""The default a of `forecast`, with which the weights are a mean of about 1 + a·(slots − 1) uploads."""


class RateTrial(StrEnum):
    """The outcome of trying learning rates before a job."""

    NONE = "none"
    """The job names its rate, or is too small or its steps too heavy for a trial."""
    CHOSE = "chose"
    UNDECIDED = "undecided"
    """No rate had learnt anything yet."""


@dataclass(frozen=True)
class LrScaling:
    """The factor by which the learning rate is raised because clients train at the same time."""

    scale_with_clients: int = 1
    """The rate is multiplied by the number of active clients, up to this number: linear scaling (Goyal et al. 2017,
    arXiv 1706.02677)."""
    short_job_boost: float = 1.0
    """The rate is multiplied by LONG_STEPS / the sequential steps, up to this: a job of few epochs would end too early.
    """
    steps: int = 0
    """Optimizer steps in all subtasks of the job."""
    most_boost: float = 1.0
    """How far several slots may raise `short_job_boost`, if that is for one slot: on several the weights are a mean of
    uploads, whose noise falls with the root of their number (docs/decisions/101).
    """

    def at(self, active_clients: int, open_workunits: int) -> float:
        """The factor for a workunit that is created now; ≥ 1."""
        sequential = self.steps / max(1, open_workunits)
        boost = LONG_STEPS / sequential if sequential > 0 else 1.0
        averaged = 1.0 + _DAMPING * (max(1, open_workunits) - 1)
        raised = min(math.sqrt(averaged), boost / MOST_BOOST)  # none for a job of more steps in a row than a trial has
        bound = max(self.short_job_boost, min(self.most_boost, self.short_job_boost * raised))
        return min(max(1, active_clients), self.scale_with_clients) * max(1.0, min(boost, bound))


UNSCALED = LrScaling()
"""The rate alone."""
