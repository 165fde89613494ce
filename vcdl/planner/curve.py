"""The accuracy after more epochs: m(e) = limit − gap · e^(−rate) (Hestness et al., arXiv 1712.00409)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEEDED = 4
"""Fewest epochs that say anything about further ones."""


@dataclass(frozen=True)
class LearningCurve:
    """A fitted curve; `error` is the standard deviation of what was measured about it."""

    limit: float
    gap: float
    rate: float
    error: float

    @classmethod
    def fit(cls, measured: Sequence[float]) -> "LearningCurve | None":
        """The curve of one value an epoch, the higher the better; None where too few are known or none fits."""
        from scipy.optimize import curve_fit

        if len(measured) < NEEDED:
            return None
        epochs, values = np.arange(1.0, len(measured) + 1.0), np.asarray(measured, float)
        best = float(values.max())

        def curve(e: npt.NDArray[np.float64], limit: float, gap: float, rate: float) -> npt.NDArray[np.float64]:
            return np.asarray(limit - gap * e**-rate)

        try:
            (limit, gap, rate), _ = curve_fit(
                curve, epochs, values, p0=(best, best - values[0] + 1e-3, 1.0),
                bounds=([best - 0.5 * abs(best), 0.0, 0.05], [max(1.0, 2 * best), 10 * abs(best) + 1, 5.0]),
            )  # fmt: skip
        except (RuntimeError, ValueError):
            return None
        error = float(np.std(values - curve(epochs, limit, gap, rate)))
        return cls(float(limit), float(gap), float(rate), error)

    def at(self, epochs: float) -> float:
        """The value after so many epochs."""
        return float(self.limit - self.gap * epochs**-self.rate)

    def epochs_to(self, value: float) -> float | None:
        """Epochs until a value is reached; None: never."""
        if value >= self.limit:
            return None
        return float(max(1.0, (self.gap / (self.limit - value)) ** (1.0 / self.rate)))
