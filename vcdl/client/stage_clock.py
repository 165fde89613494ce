"""Measure the seconds that a subtask spends in each stage on its client. A stage ends where the next one begins."""

import time
from collections.abc import Mapping

from vcdl.wire.workunit import STAGES

TRAIN = "train"
"""The stage whose seconds are `train_s` in an update's header."""

NETWORK = "network"
"""The stage that no header reports: the server counts the rest of the time as network time."""


class StageClock:
    """Assigns all time since its creation to stages, so that no second is counted twice or left out."""

    def __init__(self, before_s: Mapping[str, float]) -> None:
        """Start the clock.

        Args:
            before_s: Stage → seconds of this process before now.
        """
        self._since_s = time.perf_counter()
        self._times_s = dict(before_s)

    def lap(self, stage: str) -> None:
        """Assign the time since the last call to a stage."""
        now_s = time.perf_counter()
        self.add(stage, now_s - self._since_s)
        self._since_s = now_s

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage that `lap` does not measure: part of another stage, or time of an earlier process."""
        self._times_s[stage] = self._times_s.get(stage, 0.0) + seconds

    @property
    def times_s(self) -> dict[str, float]:
        """Seconds by stage, in whole milliseconds, without those that took none."""
        rounded = {stage: round(self._times_s.get(stage, 0.0), 3) for stage in STAGES}
        return {stage: seconds for stage, seconds in rounded.items() if seconds > 0.0}
