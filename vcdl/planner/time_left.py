"""Estimate the time and money left of a job, as a range, from the spread of recent arrivals."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, stdev

from vcdl.planner.forecast import MODEL_ERROR
from vcdl.planner.spot_market import HELD


def time_left(subtasks: int, came_s: Sequence[float]) -> tuple[float, float] | None:
    """Return a range of seconds within which the further subtasks arrive, with a probability of 80 %.

    Args:
        subtasks: How many are left.
        came_s: Arrival times of the uploads so far.

    Returns:
        The range, or None before three uploads arrived.
    """
    intervals = [later - sooner for sooner, later in pairwise(came_s)]
    if len(intervals) < 2 or (mean := fmean(intervals)) <= 0:
        return None
    relative = stdev(intervals) / mean
    # Three independent errors: of the measured mean, of the mean to come, and of hosts that change their speed.
    error = (relative**2 / len(intervals) + relative**2 / max(1, subtasks) + MODEL_ERROR**2) ** 0.5
    width = NormalDist().inv_cdf(0.5 + HELD / 2) * error
    return subtasks * mean * max(0.0, 1.0 - width), subtasks * mean * (1.0 + width)


def all_left(jobs: Sequence[tuple[int, tuple[float, float] | None]]) -> tuple[float, float] | None:
    """Return the range of seconds until all of several jobs on the same hosts are done.

    Args:
        jobs: For each job the number of subtasks left, and the range of seconds that it needs alone, or None if
            unknown.

    Returns:
        The least and the most seconds, or None if the range of one job is unknown.
    """
    known = [(subtasks, between) for subtasks, between in jobs if between is not None and between[0] > 0]
    if not jobs or len(known) < len(jobs):
        return None
    # Rates of jobs on the same hosts add up, so the times combine as a harmonic mean.
    total = sum(subtasks for subtasks, _ in jobs)
    low, high = (total / sum(subtasks / between[end] for subtasks, between in known) for end in (0, 1))
    return low, high


def money_to_end(usd_per_h: float, left_s: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the most US dollars that hosts at a price per hour cost in a range of seconds."""
    return usd_per_h * left_s[0] / 3600.0, usd_per_h * left_s[1] / 3600.0
