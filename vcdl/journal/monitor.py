"""The metric by which a job is judged, for the best epoch, the target, patience and collapse."""

import math
from dataclasses import dataclass, field
from typing import Final

from vcdl.journal.events import RunStarted, VersionEvaluated
from vcdl.wire.task import ACCURACY, LOSS

MAX: Final = "max"
MIN: Final = "min"


@dataclass(frozen=True)
class Monitor:
    """A metric on validation data, and its direction: whether high or low is better."""

    name: str = ACCURACY
    """`loss`, or a metric of the job."""
    mode: str = MAX
    """`max` or `min`."""
    is_signed: bool = False
    """Whether a metric that should be low may be negative, so that ratios of its values are meaningless."""

    @classmethod
    def of_session(cls, event: RunStarted) -> "Monitor | None":
        """Return the monitor that the start of a session names, or None in journals of older versions of vcdl."""
        return cls(event.monitor, event.mode) if event.monitor else None

    @classmethod
    def of_first(cls, event: VersionEvaluated) -> "Monitor":
        """Return the monitor of a journal that names none: accuracy if its first evaluation has it, else the loss."""
        # Journals from before monitors were judged by one of these two, and must keep their best epoch.
        return cls() if ACCURACY in event.metrics else cls(LOSS, MIN)

    def value(self, event: VersionEvaluated) -> float:
        """Return the value of the monitored metric in an evaluation, or NaN if the evaluation lacks it."""
        # A version that was measured before the monitor was chosen lacks it.
        return event.measures.get(self.name, math.nan)

    def score(self, value: float) -> float:
        """Return a value with its sign such that larger is better. NaN becomes −infinity, the worst score."""
        # Every comparison with NaN is false, so a maximum over scores would depend on their order.
        if math.isnan(value):
            return -math.inf
        return value if self.mode == MAX else -value

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as a target."""
        return self.score(value) >= self.score(target)


@dataclass(frozen=True)
class EpochDetail:
    """The evaluations of an epoch's versions; mean, min and max are those of the monitor."""

    epoch: int
    mean: float
    min: float
    max: float
    wall_s: float
    """Active seconds at which the epoch was closed."""
    measures: dict[str, float] = field(default_factory=dict, hash=False)
    """Name → mean, for the loss and every metric."""
    train_loss: float | None = None
    """The clients' mean loss over the samples that they trained, or None if no client reported one."""


@dataclass(frozen=True)
class LossSum:
    """Losses of updates, weighted by their samples."""

    total: float = 0.0
    samples: int = 0

    def plus(self, loss: float, samples: int) -> "LossSum":
        """Return the sum with one more update."""
        return LossSum(self.total + loss * samples, self.samples + samples)

    @property
    def mean(self) -> float | None:
        """The mean loss of a sample, or None without samples."""
        return self.total / self.samples if self.samples else None
