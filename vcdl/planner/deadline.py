"""When to pay for machines on demand to keep a deadline: `uniform_progress` is Wu et al., "Can't Be Late" (NSDI 2024).
Behind time's proportion, on demand makes up for missing spot; ahead of it the job waits. Close to the deadline nothing
is left to chance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

RESTART_S = 180.0
"""Usual seconds from asking for a machine until it trains: 70 to 95 s of boot in CM-DARE, then the start."""


class Use(Enum):
    """The machines that a job runs on."""

    NOTHING = "nothing"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True)
class DeadlineTask:
    """A job with a deadline, and how often its policy is asked."""

    work_s: float
    """Seconds of work in all, on the machines that are wanted."""
    deadline_s: float
    """Seconds from the job's begin."""
    restart_s: float
    """Seconds from asking for machines until they work."""
    step_s: float
    """Seconds until the policy is asked again."""


@dataclass(frozen=True)
class Situation(DeadlineTask):
    """The job at a moment, as its policy sees it."""

    passed_s: float
    """Seconds since the job began."""
    done_s: float
    """Seconds of work that are done."""
    is_spot_there: bool
    now: Use

    @property
    def slack_s(self) -> float:
        """Seconds that may still be lost."""
        return self.deadline_s - self.passed_s - (self.work_s - self.done_s)

    @property
    def is_behind(self) -> bool:
        """Whether less is done than in proportion to the time."""
        ahead_s = 2.0 * self.restart_s if self.now is Use.ON_DEMAND else 0.0  # not to and fro
        return self.done_s * self.deadline_s < self.work_s * (self.passed_s + ahead_s)

    @property
    def is_last_moment(self) -> bool:
        """Whether on-demand machines have to work from now on: one more change could come too late."""
        return self.slack_s < 2.0 * self.restart_s + self.step_s


Policy = Callable[[Situation], Use]


def uniform_progress(at: Situation) -> Use:
    """The machines to use now: spot where it is to be had, on demand only when the job would be late."""
    if at.is_last_moment:
        return Use.SPOT if stays_on_spot(at) else Use.ON_DEMAND
    if at.is_spot_there:
        return Use.SPOT
    return Use.ON_DEMAND if at.is_behind else Use.NOTHING


def stays_on_spot(at: Situation) -> bool:
    """Whether a job at its last moment stays on spot: one restart still fits, and a switch pays a restart at once."""
    return at.now is Use.SPOT and at.is_spot_there and at.slack_s >= at.restart_s + at.step_s


def spot_only(at: Situation) -> Use:
    """Never on demand, so that it may be late."""
    return Use.SPOT if at.is_spot_there else Use.NOTHING


@dataclass(frozen=True)
class DeadlineOutcome:
    """A job's end under a policy, over a trace."""

    is_kept: bool
    """Whether the deadline was."""
    wall_s: float
    """Seconds until the job was done; the deadline or more when it was not kept, infinite without an end."""
    cost: float
    """Money, in hours of on-demand machines."""
    on_demand_s: float
    restarts: int


def follow(policy: Policy, is_there: Sequence[bool], task: DeadlineTask, spot_price: float) -> DeadlineOutcome:
    """Let a policy run a job over a trace of spot capacity; a machine that restarts is paid for, and works later."""
    now, done_s, starting_s = Use.NOTHING, 0.0, 0.0
    spot_s = on_demand_s = 0.0
    restarts, step_s, work_s = 0, task.step_s, task.work_s
    for step, there in enumerate(is_there):
        passed_s = step * step_s
        if now is Use.SPOT and not there:
            now = Use.NOTHING
        use = policy(Situation(**vars(task), passed_s=passed_s, done_s=done_s, is_spot_there=there, now=now))
        if use is not now and use is not Use.NOTHING:
            restarts, starting_s = restarts + 1, task.restart_s
        now = use
        used_s = step_s
        if use is not Use.NOTHING:
            works_s = max(0.0, step_s - starting_s)
            if done_s + works_s >= work_s:
                used_s = work_s - done_s + min(step_s, starting_s)
            done_s = min(work_s, done_s + works_s)
            starting_s = max(0.0, starting_s - step_s)
            spot_s += used_s if use is Use.SPOT else 0.0
            on_demand_s += used_s if use is Use.ON_DEMAND else 0.0
        if done_s >= work_s:
            wall_s = passed_s + used_s
            break
    else:
        wall_s = float("inf")
    cost = (on_demand_s + spot_s * spot_price) / 3600.0
    return DeadlineOutcome(wall_s <= task.deadline_s, wall_s, cost, on_demand_s, restarts)
