"""The learning rate of a subtask, in one formula. Pure arithmetic.

    rate = peak · course · clients · boost · moments

    peak      the job's, or that of its optimizer (vcdl.client.optimizers)
    course    by the subtask's place in the job, above 0 and at most 1: an even warm-up, then the way to `end_factor`:
              1 − t (linear), 1 − t² (quadratic), or half a cosine, with t the fraction of the job after the warm-up
    clients   those at work when its workunit was created, at most `scale_with_clients`: linear scaling (Goyal et al.
              2017, arXiv 1706.02677)
    boost     LONG_STEPS / sequential steps, as a job of few epochs would end too early; at least 1, and at most
              `short_job_boost`, which a trial finds where it is `auto` (vcdl.models.rate_trial). The sequential steps
              are the steps of the whole job divided by the number of open workunits. A trial uses one slot. On several
              slots the weights are a mean of uploads, whose noise falls with the root of their number, so the bound
              that a trial found rises by √(1 + DAMPING · (open − 1)), up to MOST_BOOST (docs/decisions/101)
    moments   at least 1, on the client: compensates for first moments that start at zero in each subtask, while the
              second moments are sent with the weights (vcdl.client.moments)

The server sends `peak` times the next three factors, which `SubtaskRate.at` returns. The client multiplies by the last.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from vcdl.rules.ramp import interpolate

RateShape = Literal["constant", "linear", "cosine", "quadratic"]

USUAL_BOOST = 3.0
"""The highest factor by which a short job's rate is raised where nothing was tried (docs/decisions/019)."""
LONG_STEPS = 7500
"""Sequential optimizer steps from which on a job counts as long and its rate is not raised (docs/decisions/019)."""
MOST_BOOST = 16.0
"""The highest factor that a trial tries: at twice as much some jobs collapse (docs/decisions/101)."""
_FORECAST_DAMPING = 0.15
"""The default `staleness_damping` a of the rule `forecast`, with which n slots average about 1 + a·(n − 1) uploads."""


class RateTrial(StrEnum):
    """The outcome of trying learning rates before a job."""

    NONE = "none"
    """There was no trial: the job sets its rate, or is too small, or its steps are too expensive."""
    CHOSE = "chose"
    UNDECIDED = "undecided"
    """No rate had improved the model yet."""


@dataclass(frozen=True)
class SubtaskRate:
    """A learning-rate schedule: the factor on the peak rate for each workunit, by place, open workunits and clients."""

    shape: RateShape = "constant"
    warmup: float = 0.0
    """Fraction of the job's subtasks before the peak."""
    end_factor: float = 0.0
    """Fraction of the peak at the job's end; `constant` does not use it."""
    scale_with_clients: int = 1
    short_job_boost: float = 1.0
    steps: int = 0
    """Optimizer steps in all subtasks of the job."""
    most_boost: float = 1.0
    """The highest `short_job_boost` after several slots have raised it."""

    def at(self, place: int, subtasks: int, active_clients: int = 1, open_workunits: int = 1) -> float:
        """Return the factor on the peak rate for a subtask whose workunit is created now.

        Args:
            place: The subtask's number in the job, counted from 0.
            subtasks: Number of subtasks of the whole job.
            active_clients: Clients at work now; more than `scale_with_clients` count as that many.
            open_workunits: Number of workunits that are open now, whose steps run at the same time.
        """
        clients = min(max(1, active_clients), self.scale_with_clients)
        return self._course(place, subtasks) * (clients * self._boost(max(1, open_workunits)))

    @property
    def highest(self) -> float:
        """The highest result of `at` with one open workunit, at which a step's length is measured before the job."""
        return self.scale_with_clients * self.short_job_boost

    def words(self, peak: float, *, is_tried: bool, has_moments: bool) -> str:
        """Return the module's formula with a job's numbers as text for users, such as `0.001 × course (…)`.

        Factors that are always 1 in this job are left out.

        Args:
            peak: The job's peak rate.
            is_tried: Whether a trial finds `short_job_boost`.
            has_moments: Whether second moments travel with the weights.
        """
        most = MOST_BOOST if is_tried else self.short_job_boost
        course = [f"warm-up in {self.warmup:.0%} of the job"] if self.warmup else []
        course += [f"{self.shape} to {self.end_factor:g}"] if self.shape != "constant" else []
        factors = {
            f"course ({', '.join(course)})": bool(course),
            f"clients at work (1 to {self.scale_with_clients})": self.scale_with_clients > 1,
            f"boost of a short job (1 to {most:g}{', as a trial finds' if is_tried else ''})": most > 1,
            "moments (1 or more)": has_moments,
        }
        return " × ".join([f"{peak:g}", *(words for words, is_there in factors.items() if is_there)])

    def _course(self, place: int, subtasks: int) -> float:
        rising = self.warmup * subtasks
        # The first subtask gets a fraction of the peak and not 0, or it would train nothing.
        if place + 1 < rising:
            return (place + 1) / rising
        if self.shape == "constant":
            return 1.0
        fraction = min(1.0, max(0.0, (place - rising) / (subtasks - rising)))
        if self.shape == "quadratic":
            return interpolate(1.0, self.end_factor, fraction**2, "linear")
        return interpolate(1.0, self.end_factor, fraction, self.shape)

    def _boost(self, open_workunits: int) -> float:
        # Workunits that are open at the same time advance the weights about as far as a single one (decision 019), so
        # the steps in sequence are divided by their number.
        sequential = self.steps / open_workunits
        boost = LONG_STEPS / sequential if sequential > 0 else 1.0
        averaged = 1.0 + _FORECAST_DAMPING * (open_workunits - 1)
        raised = min(math.sqrt(averaged), boost / MOST_BOOST)  # none for a job with more sequential steps than a trial
        bound = max(self.short_job_boost, min(self.most_boost, self.short_job_boost * raised))
        return max(1.0, min(boost, bound))


STEADY = SubtaskRate()
"""A constant rate for the whole job."""
