"""How a job learns on so many slots: its steps in a row, its staleness, and the accuracy that this costs."""

import math
from dataclasses import dataclass
from typing import Self

ENOUGH_STEPS = 300
_LOST = ((ENOUGH_STEPS, (0.3, 2.5)), (100, (1.0, 4.0)), (50, (2.0, 11.0)), (0, (6.0, 17.0)))
"""From so many steps in a row on: points lost to serial training, the median and nine in ten of 124 runs of seven small
problems (docs/decisions/074).
"""


@dataclass(frozen=True)
class Pace:
    """A job on so many slots."""

    slots: int
    """Subtasks in training at a time."""
    sequential_steps: int
    """Optimizer steps of the job, divided by the slots."""
    epochs_wanted: int
    """Epochs in which it would make ENOUGH_STEPS in a row."""

    @classmethod
    def of(cls, steps: int, epochs: int, shards: int, slots: int) -> Self:
        """The pace of a job of so many `steps`. More slots than shards stay idle."""
        used = min(slots, shards)
        return cls(used, steps // used, max(epochs, math.ceil(ENOUGH_STEPS * used * epochs / max(1, steps))))

    @property
    def staleness(self) -> int:
        """Versions that come between a subtask's begin and its upload, with slots alike."""
        return self.slots - 1

    @property
    def lost_points(self) -> tuple[float, float]:
        """Points of accuracy below serial training: in the median of the measured problems, and in nine of ten."""
        return next(lost for steps, lost in _LOST if self.sequential_steps >= steps)
