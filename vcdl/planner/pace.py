"""Estimate how training on many slots affects what a job learns: rounds of uploads, staleness, and lost accuracy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from vcdl.job.cut import ENOUGH_ROUNDS, enough_shards

_LOST = ((8, (0.5, 2.7)), (4, (0.7, 2.7)), (2, (1.2, 3.5)), (1, (2.4, 5.9)), (0, (5.2, 11.3)))
"""Pairs of (rounds per slot, points lost to serial training): the median and the 90th percentile of jobs.

From eight on these are 21 jobs of all kinds on ten slots, with seeds and problems that nothing was chosen on
(docs/measured/learning-tried.md). Below it they are 264 cells of six small problems (docs/decisions/101), without a
convolution or a Transformer: nine in ten of those with four rounds had less, 1.8.
"""


@dataclass(frozen=True)
class Pace:
    """The rounds and the staleness of a job on a given number of slots."""

    slots: int
    """Number of subtasks in training at a time."""
    shards: int
    rounds: int
    """Number of subtasks that each slot trains, one after the other."""
    cures: Mapping[str, int]
    """Key of the job file → recommended value, if the job makes fewer rounds than ENOUGH_ROUNDS times its slots.
    Otherwise empty. More shards come first, because they cost no training, then epochs."""

    @classmethod
    def of(cls, batches: int, epochs: int, shards: int, slots: int) -> Self:
        """Return the pace of a job. Slots beyond the number of shards stay idle and do not count.

        Args:
            batches: Number of batches in an epoch; there cannot be more shards.
            epochs: Number of epochs.
            shards: Number of shards.
            slots: Number of subtasks that can be trained at a time.
        """
        used, cures = min(slots, shards), {}
        # One slot is serial training, whatever its rounds.
        if used > 1 and epochs * shards < ENOUGH_ROUNDS * used**2:
            more = max(shards, min(batches, enough_shards(epochs, slots)))
            longer = math.ceil(ENOUGH_ROUNDS * min(slots, more) ** 2 / more)
            cures = {"data > shards": more} if more > shards else {}
            cures |= {"stop > epochs": longer} if longer > epochs else {}
        return cls(used, shards, epochs * shards // used, cures)

    @property
    def staleness(self) -> int:
        """Versions between a subtask's base and its update, if slots are equally fast."""
        return self.slots - 1

    @property
    def lost_points(self) -> tuple[float, float]:
        """Points below serial training, of accuracy or of explained variance.

        The first number is the median of the measured jobs, the second their 90th percentile.
        """
        return next(lost for least, lost in _LOST if self.rounds >= least * self.slots)
