"""Policies to meet a deadline with on-demand machines; `uniform_progress` is Wu et al., "Can't Be Late" (NSDI 2024).

A job that is behind its schedule replaces missing spot machines by on-demand ones; a job ahead of it waits. Close to
the deadline only on-demand machines are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

RESTART_S = 180.0
"""Seconds from requesting a machine until it trains, as measured in CM-DARE: 70 to 95 s of boot, then the start."""


class Use(Enum):
    """The machines that a job runs on."""

    NOTHING = "nothing"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True)
class DeadlineTask:
    """A job with a deadline, and the interval between decisions."""

    work_s: float
    """Seconds that the whole job takes on all the wanted machines."""
    deadline_s: float
    """Seconds from the job's start to its deadline."""
    restart_s: float
    """Seconds from requesting machines until they work."""
    step_s: float
    """Seconds between two decisions."""


@dataclass(frozen=True)
class Situation(DeadlineTask):
    """The state of a job at a moment, from which a policy decides."""

    passed_s: float
    """Seconds since the job began."""
    done_s: float
    """Seconds of work that are done."""
    is_spot_there: bool
    """Whether there is spot capacity for all wanted machines."""
    now: Use
    """The machines that the job runs on at this moment."""

    @property
    def slack_s(self) -> float:
        """Seconds that may still be lost without missing the deadline."""
        return self.deadline_s - self.passed_s - (self.work_s - self.done_s)

    @property
    def is_behind(self) -> bool:
        """Whether less work is done than in proportion to the time."""
        ahead_s = 2.0 * self.restart_s if self.now is Use.ON_DEMAND else 0.0  # hysteresis, against frequent changes
        return self.done_s * self.deadline_s < self.work_s * (self.passed_s + ahead_s)

    @property
    def is_last_moment(self) -> bool:
        """Whether on-demand machines have to work from now on: one more change could come too late."""
        return self.slack_s < 2.0 * self.restart_s + self.step_s


Policy = Callable[[Situation], Use]


def uniform_progress(at: Situation) -> Use:
    """Return the machines to use now: spot machines if available; on-demand ones if the job is behind its schedule.

    A job without spot capacity that is not behind waits.
    """
    if at.is_last_moment:
        return Use.SPOT if stays_on_spot(at) else Use.ON_DEMAND
    if at.is_spot_there:
        return Use.SPOT
    return Use.ON_DEMAND if at.is_behind else Use.NOTHING


def stays_on_spot(at: Situation) -> bool:
    """Return whether a job stays on spot machines although only on-demand machines are certain to finish in time.

    It does while one more restart fits, because a switch to on-demand machines costs a restart immediately.
    """
    return at.now is Use.SPOT and at.is_spot_there and at.slack_s >= at.restart_s + at.step_s


def spot_only(at: Situation) -> Use:
    """Return spot machines if available, otherwise none, even if the job will be late."""
    return Use.SPOT if at.is_spot_there else Use.NOTHING


@dataclass(frozen=True)
class DeadlineOutcome:
    """The result of simulating a policy."""

    is_kept: bool
    """Whether the deadline was met."""
    wall_s: float
    """Seconds until the job was done; infinite if it was not done at the end of the trace."""
    cost: float
    """Cost of all machines, in units of the price of all wanted on-demand machines for an hour."""
    on_demand_s: float
    """Seconds of all wanted machines on demand; a part of them counts as a fraction."""
    restarts: int
    """Number of steps in which machines were started."""


def follow(policy: Policy, spot_share: Sequence[float], task: DeadlineTask, spot_price: float) -> DeadlineOutcome:
    """Simulate a policy over a trace of spot capacity. A machine that starts is paid for before it works.

    As in a fleet (vcdl.fleet.deadline), machines with spot capacity always work, on-demand machines replace the
    missing ones, and from the last moment on they do everything.

    Args:
        policy: Decides at each step.
        spot_share: The fraction of the wanted machines with spot capacity, at each step.
        task: The job and its deadline.
        spot_price: The spot price as a fraction of the on-demand price.
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
        # Machines that stay keep the rest of their start. New ones add a whole one.
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
