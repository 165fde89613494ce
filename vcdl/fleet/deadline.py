"""Decide when a fleet pays for machines on demand to meet its deadline, by the policy Uniform Progress.

The policy is `vcdl.planner.deadline.uniform_progress`. Each pass decides anew, from the work that is done, the time
that has passed and the decision of the last pass, which the fleet's state keeps.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from vcdl.fleet.project import Queue
from vcdl.fleet.settings import CapacitySettings
from vcdl.planner.deadline import RESTART_S, Situation, Use, uniform_progress


@dataclass(frozen=True)
class Progress:
    """From when and from which amount of work progress towards a deadline is measured, and the last pass' decision."""

    deadline_s: float
    """Unix time of the deadline."""
    began_s: float
    """Unix time from which progress is measured."""
    subtasks: int
    """Number of subtasks that remained at `began_s`."""
    use: Use = Use.NOTHING
    """Which machines the last pass has decided to use."""
    is_last_moment: bool = False
    """Whether machines on demand must do all of the remaining work, because another change could come too late."""

    @property
    def stands_in(self) -> bool:
        """Whether machines on demand replace missing spot capacity."""
        return self.use is Use.ON_DEMAND


class Units(NamedTuple):
    """The capacity of a fleet at one pass, counted in `capacity > unit`."""

    wanted: int
    """Units that the fleet should have."""
    spot: int
    """Units of pending and running preemptible instances."""
    on_demand: int
    """Units of pending and running on-demand instances, beyond those that the settings always want."""

    @property
    def use(self) -> Use:
        """Which machines the fleet uses now, as the policy counts it."""
        return Use.ON_DEMAND if self.on_demand > 0 else Use.SPOT if self.spot > 0 else Use.NOTHING


def follow_deadline(
    before: Progress | None, queue: Queue, capacity: CapacitySettings, units: Units, now_s: float, step_s: float
) -> Progress | None:
    """Decide in a pass whether machines on demand replace missing spot capacity until the next pass.

    Args:
        before: The last pass' decision, or None if there is none.
        queue: The remaining work.
        capacity: The fleet's settings.
        units: The fleet's capacity now.
        now_s: Unix time.
        step_s: Seconds until the next pass.

    Returns:
        The decision, or None without a deadline or without work. If work was added or the deadline was changed,
        progress is measured from now on.
    """
    if capacity.deadline is None or units.wanted <= 0:
        return None
    deadline_s = capacity.deadline.timestamp()
    start = before
    # Start anew when a new job has added work: compared with the old schedule the fleet would seem hopelessly late.
    if start is None or start.deadline_s != deadline_s or start.subtasks < queue.remaining:
        start = Progress(deadline_s, now_s, queue.remaining)
    # The deadline is missed anyway, so on-demand machines are not worth their price.
    if deadline_s <= now_s:
        return replace(start, use=Use.NOTHING, is_last_moment=False)
    # Assume the fleet's full size while subtasks are unsent, because more machines would find work; otherwise only as
    # many subtasks at once as are running. Without a known time of a subtask the tiny 1e-6 s makes only the fraction
    # of finished subtasks count.
    at_once = capacity.limit / capacity.units_per_subtask if queue.unsent or not queue.running else queue.running
    task_s = queue.task_s or 0.0
    subtask_s = max(task_s, 1e-6) / max(1.0, at_once)
    situation = Situation(
        passed_s=now_s - start.began_s,
        done_s=(start.subtasks - queue.remaining) * subtask_s,
        work_s=start.subtasks * subtask_s,
        deadline_s=deadline_s - start.began_s,
        restart_s=RESTART_S + task_s,  # a new machine has done nothing until its first subtask is uploaded
        step_s=step_s,
        is_spot_there=units.spot >= units.wanted - capacity.on_demand.units(units.wanted),
        now=units.use,
    )
    use = uniform_progress(situation)
    return replace(start, use=use, is_last_moment=use is Use.ON_DEMAND and situation.is_last_moment)
