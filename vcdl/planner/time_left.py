"""The range of a time that is left, from the spread of what came last."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, stdev

from vcdl.planner.forecast import MODEL_ERROR
from vcdl.planner.spot_market import HELD


def time_left(subtasks: int, came_s: Sequence[float]) -> tuple[float, float] | None:
    """Least and most seconds for so many further subtasks, in four of five cases; `came_s`: when the last ones came.

    The mean interval is uncertain by its own error, a sum of intervals spreads, and speed drifts by MODEL_ERROR. None
    before there are three.
    """
    intervals = [later - sooner for sooner, later in pairwise(came_s)]
    if len(intervals) < 2 or (mean := fmean(intervals)) <= 0:
        return None
    relative = stdev(intervals) / mean
    error = (relative**2 / len(intervals) + relative**2 / max(1, subtasks) + MODEL_ERROR**2) ** 0.5
    width = NormalDist().inv_cdf(0.5 + HELD / 2) * error
    return subtasks * mean * max(0.0, 1.0 - width), subtasks * mean * (1.0 + width)
