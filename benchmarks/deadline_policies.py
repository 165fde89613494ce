"""Policies beside which Uniform Progress is measured, and a cost that none can go below."""

from collections.abc import Mapping, Sequence

from vcdl.planner.deadline import DeadlineTask, Policy, Situation, Use, spot_only, stays_on_spot, uniform_progress


def greedy(at: Situation) -> Use:
    """Spot as long as it may wait, on demand at the last moment."""
    if at.is_last_moment:
        return Use.SPOT if stays_on_spot(at) else Use.ON_DEMAND
    return spot_only(at)


def on_demand_only(_at: Situation) -> Use:
    """Never spot."""
    return Use.ON_DEMAND


POLICIES: Mapping[str, Policy] = {
    "uniform progress": uniform_progress,
    "greedy": greedy,
    "spot only": spot_only,
    "on demand only": on_demand_only,
}


def least_cost(is_there: Sequence[bool], task: DeadlineTask, spot_price: float) -> float:
    """A cost that no policy can go below, in hours of on-demand machines: all spot capacity before the deadline is
    known, and restarts take no time.
    """
    spot_s = min(task.work_s, task.step_s * sum(is_there[: int(task.deadline_s / task.step_s)]))
    return (spot_s * spot_price + task.work_s - spot_s) / 3600.0
