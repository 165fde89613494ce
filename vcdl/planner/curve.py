"""Predict the accuracy after more epochs: m(e) = limit − gap · e^(−rate) (Hestness et al., arXiv 1712.00409)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEEDED = 4
"""Least epochs that a curve is fitted to: it has three parameters, so with three epochs the fit would be exact and its
error unknown."""
_RATES = (0.05, 5.0)
"""Bounds of the rate. A slower curve looks like a line over the epochs seen; a faster one is flat after an epoch."""
_GRID, _ZOOMS = 25, 6
"""Rates tried in each round, and number of rounds, so that the last round's grid has steps of 1e-7 of the rate."""


@dataclass(frozen=True)
class LearningCurve:
    """A fitted curve m(e) = limit − gap · e^(−rate) over epochs e."""

    limit: float
    gap: float
    rate: float
    error: float
    """Standard deviation of the measured values around the curve."""

    @classmethod
    def fit(cls, measured: Sequence[float]) -> "LearningCurve | None":
        """Fit a curve to one value per epoch, the higher the better.

        Returns:
            The curve, or None with fewer than NEEDED values or without a fit.
        """
        values = np.asarray(measured, float)
        if len(values) < NEEDED or not np.isfinite(values).all():
            return None
        low, high = _RATES
        best = (np.inf, 0.0, 0.0, low)
        # One parameter is searched. For a given rate the two others follow by least squares, so no SciPy is needed
        # (decision 142).
        for _ in range(_ZOOMS):
            rates = np.geomspace(low, high, _GRID)
            found = [_line(values, float(rate)) for rate in rates]
            best = min(found)
            place = found.index(best)
            low, high = rates[max(place - 1, 0)], rates[min(place + 1, _GRID - 1)]
        _, limit, gap, rate = best
        errors = values - limit + gap * np.arange(1.0, len(values) + 1.0) ** -rate
        return cls(limit, gap, rate, float(np.std(errors)))

    def at(self, epochs: float) -> float:
        """Return the value expected after `epochs` epochs."""
        return float(self.limit - self.gap * epochs**-self.rate)

    def epochs_to(self, value: float) -> float | None:
        """Return after how many epochs the curve reaches a value, or None if the value is not below its limit."""
        # The curve approaches its limit and never reaches it.
        if value >= self.limit:
            return None
        return float(max(1.0, (self.gap / (self.limit - value)) ** (1.0 / self.rate)))


def _line(values: npt.NDArray[np.float64], rate: float) -> tuple[float, float, float, float]:
    """Fit limit and gap for a given rate, by least squares within their bounds.

    Returns:
        The sum of squared errors, the limit, the gap and the rate.
    """
    best = float(values.max())
    lowest, highest, widest = best - 0.5 * abs(best), max(1.0, 2 * best), 10 * abs(best) + 1
    fallen = np.arange(1.0, len(values) + 1.0) ** -rate
    # The unbounded optimum first, then each bound with the best value of the other: the minimum of a convex sum on a
    # rectangle's edge.
    limit = np.clip(np.polyfit(fallen, values, 1)[1], lowest, highest)
    gap = float(np.clip(fallen @ (limit - values) / (fallen @ fallen), 0.0, widest))
    limit = float(np.clip((values + gap * fallen).mean(), lowest, highest))
    return float(((values - limit + gap * fallen) ** 2).sum()), limit, gap, rate
