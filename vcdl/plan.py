"""What the coordinator must know of a job: the numbers that decide, and nothing of how the job is carried out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcdl.course import STEADY, UNSCALED, RateCourse, RateScaling

if TYPE_CHECKING:
    from vcdl.job import Job

EVERY_EPOCH = 0
"""`Plan.validate_every` when versions are evaluated at the end of an epoch only."""


@dataclass(frozen=True)
class Plan:
    """What the coordinator must know of a job."""

    job: str
    seed: int
    shards: int
    rolling: bool
    validate_every: int
    """Versions; EVERY_EPOCH for the end of an epoch only."""
    has_test: bool
    epochs: int
    target_accuracy: float | None
    wall_time_s: float | None
    patience_epochs: int | None
    tries: int
    """How often a subtask may be tried."""
    rate: RateCourse = STEADY
    """Of the clients' learning rate over the job."""
    scaling: RateScaling = UNSCALED
    """Of that rate, by the clients at work."""
    needs_bases: bool = False
    """Whether an update is folded in with the weights that its client started from."""

    @classmethod
    def of(cls, job: "Job", has_test: bool, shard_samples: Sequence[int]) -> "Plan":
        """The plan of a job; `has_test`: its data have a test set."""
        from vcdl.rules.of_job import rule_of

        return cls(
            job=job.name,
            seed=job.seed,
            shards=job.data.shards,
            rolling=job.schedule.kind == "rolling",
            validate_every=job.validate_every,
            has_test=has_test,
            epochs=job.stop.epochs,
            target_accuracy=job.stop.target_accuracy,
            wall_time_s=job.stop.wall_time_s,
            patience_epochs=job.stop.patience,
            tries=job.grid.tries,
            rate=job.training.rate_course,
            scaling=job.training.rate_scaling(shard_samples, job.stop.epochs),
            needs_bases=rule_of(job).needs_base or job.transport.needs_bases,
        )


def is_validated(validate_every: int, version: int) -> bool:
    """Whether a version must be kept and evaluated, whatever epoch it is of."""
    return validate_every != EVERY_EPOCH and version % validate_every == 0
