"""Choose the round numbers at which the axes of a chart are labelled."""

import math
from typing import NamedTuple

from vcdl.report.wording import duration

_TICKS = 5
"""Most steps between the labels of an axis, so that labels do not overlap on a phone."""
_TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
)
DAY_S = 86_400
"""Seconds of a day, because longer axes have whole days between their labels."""


class Tick(NamedTuple):
    """A label of an axis."""

    share: float
    """Place of the label, from 0 at the left or bottom to 1 at the other end."""
    words: str


def round_values(low: float, high: float, is_log: bool = False) -> list[float]:
    """Return a few round numbers in a range, ascending, at which to label an axis.

    Args:
        low: The lower end.
        high: The upper end, above `low`.
        is_log: Whether the axis is logarithmic. Then both ends must be above 0.
    """
    # Below a factor of ten a logarithmic axis would have one power of ten or none on it.
    return _powers(low, high) if is_log and high >= 10 * low else _multiples(low, high)


def _multiples(low: float, high: float) -> list[float]:
    """Return the multiples of a round step in a range; the step is 1, 2 or 5 times a power of ten."""
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    # 10 times the power is always enough, so `next` finds one.
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Return powers of ten in a range. If there are few, 2 and 5 times them are added; if many, some are left out."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 3 else (1,)
    values = (digit * 10.0**power for power in powers[:: math.ceil(len(powers) / _TICKS)] for digit in digits)
    return [value for value in values if low <= value <= high]


def time_ticks(last_s: float) -> list[Tick]:
    """Return the ticks of a time axis from 0 to `last_s` seconds (above 0), at round steps and at most six."""
    days_s = DAY_S * math.ceil(last_s / _TICKS / DAY_S)
    step_s = next((step_s for step_s in _TIME_STEPS_S if last_s <= _TICKS * step_s), days_s)
    times = range(0, math.floor(last_s) + 1, step_s)
    return [Tick(time / last_s, duration(time).removesuffix(" 00 s").removesuffix(" 00 min")) for time in times]


def epoch_ticks(last: float) -> list[Tick]:
    """Return the labels of an axis of epochs, from 0 to `last`."""
    return [Tick(epoch / last, f"{epoch:.0f}") for epoch in round_values(0, last) if epoch == round(epoch)]
