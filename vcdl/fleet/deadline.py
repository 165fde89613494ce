"""Decide when a fleet pays for machines on demand to meet its deadline, by the policy Uniform Progress.

A pure function that decides in each pass from the last decision.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from vcdl.fleet.project import Queue
from vcdl.fleet.settings import CapacitySettings
from vcdl.planner.deadline import RESTART_S, Situation, Use, uniform_progress


@dataclass(frozen=True)
class Progress:
    """The start of the work towards a deadline, and the decision of the last pass."""

    deadline_s: float
    """Unix time of the deadline, as `began_s`."""
    began_s: float
    subtasks: int
    """Number of subtasks that remained at the start."""
    use: Use = Use.NOTHING
    is_last_moment: bool = False
    """Whether machines on demand must do all of the work from now on."""

    @property
    def stands_in(self) -> bool:
        """Whether machines on demand replace missing spot capacity."""
        return self.use is Use.ON_DEMAND


class Units(NamedTuple):
    """The capacity at one pass of the control loop, in `capacity > unit`."""

    wanted: int
    """Units that the fleet should have."""
    spot: int
    """Units of running preemptible instances."""
    on_demand: int
    """Units on demand, without those that the settings always want."""

    @property
    def use(self) -> Use:
        return Use.ON_DEMAND if self.on_demand > 0 else Use.SPOT if self.spot > 0 else Use.NOTHING


def follow_deadline(
    before: Progress | None, queue: Queue, capacity: CapacitySettings, units: Units, now_s: float, step_s: float
) -> Progress | None:
    """Return the decision of a pass about the deadline.

    Args:
        before: The last decision.
        queue: The remaining work.
        capacity: The fleet's settings.
        units: Its units.
        now_s: Unix time.
        step_s: Seconds between passes.

    Returns:
        None without a deadline or without work. If work was added, progress is measured from now on.
    """
    if capacity.deadline is None or units.wanted <= 0:
        return None
    deadline_s = capacity.deadline.timestamp()
    start = before
    # A new job adds work. Compared with the old schedule the fleet would seem hopelessly late, or far ahead.
    if start is None or start.deadline_s != deadline_s or start.subtasks < queue.remaining:
        start = Progress(deadline_s, now_s, queue.remaining)
    # The deadline is missed anyway, so on-demand machines are not worth their price.
    if deadline_s <= now_s:
        return replace(start, use=Use.NOTHING, is_last_moment=False)
    # While some are unsent, more machines would find work; until a time is known only the share that is done counts.
    at_once = capacity.limit / capacity.units_per_subtask if queue.unsent or not queue.running else queue.running
    task_s = queue.task_s or 0.0
    subtask_s = max(task_s, 1e-6) / max(1.0, at_once)
    situation = Situation(
        passed_s=now_s - start.began_s,
        done_s=(start.subtasks - queue.remaining) * subtask_s,
        work_s=start.subtasks * subtask_s,
        deadline_s=deadline_s - start.began_s,
        restart_s=RESTART_S + task_s,  # a machine's first subtask counts once it is back
        step_s=step_s,
        is_spot_there=units.spot >= units.wanted - capacity.on_demand.units(units.wanted),
        now=units.use,
    )
    use = uniform_progress(situation)
    return replace(start, use=use, is_last_moment=use is Use.ON_DEMAND and situation.is_last_moment)
