"""Simulate spot capacity of a machine type and zone (arXiv 2604.16457).

Spells with capacity alternate with spells without; their lengths are log-normal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HELD = 0.8
"""Fraction of outcomes inside a range. At 0.8 its ends are reached often enough to be checked against few traces."""
_MOST_PARTS = 4
"""Parts of a fleet's capacity that vary independently. At most four, because the traces contain four zones at a time.
"""


@dataclass(frozen=True)
class SpotMarket:
    """The distribution of spells with and without capacity, in logarithms of seconds."""

    mean: tuple[float, float] = (8.17, 7.78)
    """Usual spell with capacity, and without, of AWS, 2022-10 to 2023-06: the public traces of Wu et al. (NSDI 2024).
    """
    covariance: tuple[tuple[float, float], tuple[float, float]] = ((0.89, -0.38), (-0.38, 0.76))
    """The spread of the usual spells of zones and weeks."""
    spread: tuple[float, float] = (1.26, 1.20)
    """Standard deviation of a spell about the usual one."""

    def sample(self, step_s: float, steps: int, rng: np.random.Generator, machines: float = 1.0) -> list[float]:
        """Return the fraction of the machines that have capacity, for each of `steps` steps.

        A zone and a week are drawn first. Up to four machines vary independently.
        """
        usual = rng.multivariate_normal(self.mean, self.covariance)
        parts = [self._part(usual, step_s, steps, rng) for _ in range(max(1, min(int(machines), _MOST_PARTS)))]
        return [sum(there) / len(parts) for there in zip(*parts, strict=True)]

    def _part(self, usual: npt.NDArray[np.float64], step_s: float, steps: int, rng: np.random.Generator) -> list[bool]:
        mean_s = [math.exp(log_s + spread**2 / 2) for log_s, spread in zip(usual, self.spread, strict=True)]
        # Draw the first state in proportion to the mean spells, because the job may begin at any moment of the market.
        is_there = bool(rng.random() < mean_s[0] / sum(mean_s))
        found: list[bool] = []
        end_s = 0.0
        share = rng.random()  # the first spell is already under way, and longer spells are met more often
        longer = [spread**2 for spread in self.spread]
        while len(found) < steps:
            which = 0 if is_there else 1
            end_s += math.exp(rng.normal(usual[which] + longer[which], self.spread[which])) * share
            # A spell between two steps is not seen: if it were rounded up to a step, short spells would be
            # overweighted.
            found += [is_there] * (min(steps, math.ceil(end_s / step_s)) - len(found))
            is_there, share, longer = not is_there, 1.0, [0.0, 0.0]
        return found[:steps]


@dataclass(frozen=True)
class OutcomeRange:
    """The median of some outcomes, and the narrowest interval that contains a fraction HELD of them."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, outcomes: Sequence[float] | npt.NDArray[np.float64], held: float = HELD) -> "OutcomeRange":
        """Return the median and the narrowest interval that contains a fraction `held` of the outcomes.

        Two quantiles would not do: often many outcomes are equal, as when no machine is revoked, and a quantile would
        divide such a group or count it twice.
        """
        ordered = np.sort(np.asarray(outcomes, float))
        inside = min(len(ordered), max(1, math.ceil(held * len(ordered))))
        with np.errstate(invalid="ignore"):  # two infinite outcomes have no width
            widths = ordered[inside - 1 :] - ordered[: len(ordered) - inside + 1]
        first = 0 if np.isnan(widths).all() else int(np.nanargmin(widths))
        median = float(ordered[len(ordered) // 2])
        return cls(float(ordered[first]), median, float(ordered[first + inside - 1]))
