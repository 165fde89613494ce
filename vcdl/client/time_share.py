"""Estimate the fraction of a task's time that has passed, from which BOINC computes the time that is left.

The fraction of trained samples would mislead, because the start takes most of a short task.
"""

import time
from collections.abc import Callable


class TimeShare:
    """Estimates the fraction of a task's time that has passed, once two batches have shown their speed."""

    def __init__(self, earlier_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start to follow a training.

        Args:
            earlier_s: Seconds that earlier processes of this task took.
            clock: Seconds from any origin.
        """
        self._clock = clock
        self._begun_s = clock() - earlier_s
        self._first: tuple[float, float] | None = None
        self.share: float | None = None
        """The fraction, from 0 to 1, which never falls, or None if unknown."""

    def record_progress(self, fraction: float) -> None:
        """Record the fraction of the training that is done."""
        now_s = self._clock()
        # The first batch includes compilation, so measure the speed from its end on.
        if self._first is None:
            self._first = now_s, fraction
            return
        first_s, at_first = self._first
        if fraction <= at_first:
            return
        left_s = (now_s - first_s) / (fraction - at_first) * (1.0 - fraction)
        passed_s = now_s - self._begun_s
        self.share = max(self.share or 0.0, passed_s / (passed_s + left_s) if passed_s > 0 else 0.0)
