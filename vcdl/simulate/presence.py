"""Determine when a simulated host is present: its absences in order, drawn from its group or read from a trace."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from vcdl.simulate.population import HostGroup

_HOUR_S, _DAY_S = 3600.0, 86400.0
_WEEKEND = (5, 6)
"""Days of the week counted from Monday, on which virtual time begins."""


@dataclass(frozen=True, order=True)
class Absence:
    """A time in which a host is away."""

    begin_s: float
    end_s: float
    loses_work: bool = False
    """Whether the host loses the subtask that it was training."""


NEVER = Absence(math.inf, math.inf)


class Presence:
    """Answers when one host is present, from its absences, which are drawn as far as they are needed.

    The absences must be in order, not overlap, and never end (append NEVER).
    """

    def __init__(self, drawn: Iterator[Absence]) -> None:
        self._drawn = drawn
        self._known: list[Absence] = []

    def next_absence(self, time_s: float) -> Absence:
        """Return the first absence that ends after `time_s`; it may be under way at that time."""
        while not self._known or self._known[-1].end_s <= time_s:
            self._known.append(next(self._drawn))
        # Earlier absences are kept, because callers ask for times of the past and the future in any order.
        return self._known[bisect_right(self._known, time_s, key=lambda absence: absence.end_s)]

    def here_from(self, time_s: float) -> float:
        """Return the first time, at or after `time_s`, at which the host is present."""
        absence = self.next_absence(time_s)
        return absence.end_s if absence.begin_s <= time_s else time_s


def exponential_absences(every_s: float, away_s: float, rng: np.random.Generator) -> Iterator[Absence]:
    """Yield absences without end, of exponential lengths and at exponential distances.

    Args:
        every_s: Mean seconds from the end of an absence to the next one.
        away_s: Mean seconds of an absence.
        rng: The source of random numbers.
    """
    now_s = 0.0
    while True:
        begin_s = now_s + every_s * float(rng.exponential())
        now_s = begin_s + away_s * float(rng.exponential())
        yield Absence(begin_s, now_s)


def absences_of(group: HostGroup, zone_h: float, draw: Callable[[int], np.random.Generator]) -> Iterator[Absence]:
    """Yield the absences of a host of a group.

    Args:
        group: The group.
        zone_h: The host's time zone, hours from UTC.
        draw: Returns a source of random numbers for a cause: 0 for sessions, 1 for daily hours, 2 for departures.
    """
    causes: list[Iterator[Absence]] = []
    if group.on_h is not None:
        causes.append(_between_sessions(group, draw(0)))
    if (group.hours[1] - group.hours[0]) % 24:
        causes.append(_outside_hours(group, zone_h, float(draw(1).uniform(-1.0, 1.0))))
    if group.stays_days is not None:
        causes.append(_departures(group, draw(2)))
    # Each cause yields its absences in order, so a merge of the three is in order without knowing their end.
    yield from _merge_absences(heapq.merge(*causes))


def absences_in(trace: Sequence[tuple[float, float]], part: float) -> Iterator[Absence]:
    """Yield the absences of a host of a trace.

    Args:
        trace: Moments in seconds, with the fraction of the hosts that are on from then.
        part: The host's place in the population, from 0 to 1: it is on while the fraction is larger.
    """
    length_s = trace[-1][0]
    ends = [at_s for at_s, _ in trace[1:]]
    away = (
        Absence(begin_s + again * length_s, end_s + again * length_s, loses_work=True)
        for again in count()
        for (begin_s, fraction), end_s in zip(trace, ends, strict=False)
        if fraction <= part
    )
    # A host that is always on has no absence, and the search for one would never end.
    if all(fraction > part for _, fraction in trace[:-1]):
        yield NEVER
    yield from _merge_absences(away)


def _merge_absences(absences: Iterator[Absence]) -> Iterator[Absence]:
    """Merge absences that touch, given in order of their starts. After the last one, yield NEVER."""
    whole: Absence | None = None
    for absence in absences:
        if whole is not None and absence.begin_s <= whole.end_s:
            loses = whole.loses_work or absence.loses_work
            whole = Absence(whole.begin_s, max(whole.end_s, absence.end_s), loses)
            continue
        if whole is not None:
            yield whole
        whole = absence
    if whole is not None:
        yield whole
    while True:
        yield NEVER


def _between_sessions(group: HostGroup, rng: np.random.Generator) -> Iterator[Absence]:
    """Yield the times between a host's sessions. The first session or absence has already started at time 0."""
    on_s, off_s = (group.on_h or 0.0) * _HOUR_S, group.off_h * _HOUR_S
    now_s = 0.0
    if rng.random() < off_s / (on_s + off_s):
        now_s = off_s * float(rng.exponential())
        yield Absence(0.0, now_s, group.loses_work)
    else:
        now_s = _under_way(on_s, group.on_shape, rng)
    while True:
        end_s = now_s + off_s * float(rng.exponential())
        yield Absence(now_s, end_s, group.loses_work)
        now_s = end_s + _weibull(on_s, group.on_shape, rng)


def _outside_hours(group: HostGroup, zone_h: float, shift_h: float) -> Iterator[Absence]:
    """Yield the times outside of a group's hours; each host's day is shifted by up to an hour."""
    first, last = (hour + shift_h for hour in group.hours)
    away_h = (first - last) % 24
    # Start with the day before: in the host's time zone, its absence may last beyond time 0.
    for day in count(-1):
        begin_s = (day * 24 + last % 24 - zone_h) * _HOUR_S
        end_s = begin_s + away_h * _HOUR_S
        for away_s, back_s in _without_weekend(begin_s, end_s, zone_h) if group.weekend else ((begin_s, end_s),):
            if back_s > 0.0:
                yield Absence(max(0.0, away_s), back_s, group.loses_work)


def _without_weekend(begin_s: float, end_s: float, zone_h: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of a time of less than a day that are not on a weekend of the time zone."""
    midnight_s = (math.floor((begin_s + zone_h * _HOUR_S) / _DAY_S) + 1) * _DAY_S - zone_h * _HOUR_S
    for part_s, until_s in ((begin_s, min(end_s, midnight_s)), (midnight_s, end_s)):
        day = math.floor(((part_s + zone_h * _HOUR_S) / _DAY_S) % 7)
        if part_s < until_s and day not in _WEEKEND:
            yield part_s, until_s


def _departures(group: HostGroup, rng: np.random.Generator) -> Iterator[Absence]:
    """Yield the moments at which a host leaves for good. Another one replaces it after `off_h`."""
    mean_s = (group.stays_days or math.inf) * _DAY_S
    now_s = _under_way(mean_s, group.stays_shape, rng)
    while True:
        end_s = now_s + group.off_h * _HOUR_S * float(rng.exponential())
        yield Absence(now_s, end_s, loses_work=True)
        now_s = end_s + _weibull(mean_s, group.stays_shape, rng)


def _weibull(mean: float, shape: float, rng: np.random.Generator) -> float:
    """Draw a Weibull time with this mean and shape."""
    return mean / math.gamma(1.0 + 1.0 / shape) * float(rng.weibull(shape))


def _under_way(mean: float, shape: float, rng: np.random.Generator) -> float:
    """Draw how much longer a Weibull time lasts that is under way when the simulation starts.

    Such a time is longer than a usual one, because it is met in proportion to its length t. Then (t/scale)^shape is
    gamma distributed with shape 1 + 1/shape.
    """
    scale = mean / math.gamma(1.0 + 1.0 / shape)
    length: float = scale * float(rng.gamma(1.0 + 1.0 / shape)) ** (1.0 / shape)
    return float(rng.random()) * length
