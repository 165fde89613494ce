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
    """Pick the machines to use now: spot when available, on demand only when the job would be late."""
    if at.is_last_moment:
        return Use.SPOT if stays_on_spot(at) else Use.ON_DEMAND
    if at.is_spot_there:
        return Use.SPOT
    return Use.ON_DEMAND if at.is_behind else Use.NOTHING


def stays_on_spot(at: Situation) -> bool:
    """Return whether a job at its last moment stays on spot.

    It does while one more restart fits, because a switch to on-demand machines costs a restart at once.
    """
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


def follow(policy: Policy, spot_share: Sequence[float], task: DeadlineTask, spot_price: float) -> DeadlineOutcome:
    """Let a policy run a job over a trace of spot capacity; a machine that restarts is paid for, and works later.

    As a fleet does (vcdl.fleet.deadline): machines that spot capacity gives always work, on demand stands in for the
    missing ones, and from the last moment on does everything.

    Args:
        policy: Decides at each step.
        spot_share: The share of the wanted machines that there is spot capacity for, at each step.
        task: The job and its deadline.
        spot_price: As a fraction of the price on demand.
    """
    now, done_s, starting_s = Use.NOTHING, 0.0, 0.0
    on_spot = on_demand = 0.0
    spot_s = on_demand_s = 0.0
    restarts, step_s, work_s = 0, task.step_s, task.work_s
    for step, share in enumerate(spot_share):
        passed_s = step * step_s
        # The policy knows a single machine. A fleet without part of its capacity counts as having none.
        if now is Use.SPOT and share < 1.0:
            now = Use.NOTHING
        at = Situation(**vars(task), passed_s=passed_s, done_s=done_s, is_spot_there=share >= 1.0, now=now)
        now = policy(at)
        before, old_spot, old_demand = on_spot + on_demand, on_spot, on_demand
        on_spot = 0.0 if now is Use.ON_DEMAND and (at.is_last_moment or at.is_spot_there) else float(share)
        on_demand = 1.0 - on_spot if now is Use.ON_DEMAND else 0.0
        at_work = on_spot + on_demand
        kept = min(on_spot, old_spot) + min(on_demand, old_demand)
        # Machines that stay keep their part of the start that is not over yet. New ones add a whole one.
        starting_s = (starting_s * kept / before if before else 0.0) + task.restart_s * (at_work - kept)
        restarts += at_work > kept
        used_s, worked_s = step_s, max(0.0, step_s * at_work - starting_s)
        if at_work and done_s + worked_s >= work_s:
            used_s = (work_s - done_s) / at_work + min(step_s, starting_s / at_work)
        done_s = min(work_s, done_s + worked_s)
        starting_s = max(0.0, starting_s - step_s * at_work)
        spot_s += used_s * on_spot
        on_demand_s += used_s * on_demand
        if done_s >= work_s:
            wall_s = passed_s + used_s
            break
    else:
        wall_s = float("inf")
    cost = (on_demand_s + spot_s * spot_price) / 3600.0
    return DeadlineOutcome(wall_s <= task.deadline_s, wall_s, cost, on_demand_s, restarts)
