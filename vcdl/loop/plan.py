"""The plan of a job: the numbers that the coordinator decides by. How actions are carried out is not part of it."""

from dataclasses import dataclass
from typing import Self

from vcdl.job.growing_slots import growing_slots
from vcdl.job.lr_schedule import STEADY, SubtaskRate
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.monitor import Monitor
from vcdl.run.run import Run
from vcdl.trust.job_trust import OWN, TrustPlan


@dataclass(frozen=True)
class Publishing:
    """The schedule by which the newest weights are offered to clients."""

    every_s: float
    """Least seconds between two published versions."""
    keeps_s: float
    """Seconds after its replacement in which uploads that started from a version are still accepted."""


@dataclass(frozen=True, kw_only=True)
class Following:
    """The part of a plan that decides what an event means for the job."""

    shards: int
    validate_every: int
    """Versions between two evaluations. With EVERY_EPOCH only the end of each epoch is evaluated."""
    tries: int
    """Number of failures at one subtask that ends the job, or after which the server trains the subtask itself (`grid >
    tries`). If hosts are distinguished, repeated failures of one host count once."""
    needs_bases: bool = False
    """Whether the weights that a client started from are needed to apply its update again (by the rule or the
    codec)."""
    hosts_remember: bool = False
    """Whether hosts keep the residuals of their uploads, and so have to know which uploads were applied."""
    monitor: Monitor | None = None
    """The metric by which the job is judged. None means accuracy, or the loss if no accuracy is measured."""
    trust: TrustPlan = OWN


@dataclass(frozen=True, kw_only=True)
class Plan(Following):
    """The numbers of a job from which the coordinator decides."""

    job: str
    seed: int
    rolling: bool
    """Whether each subtask starts from the newest weights (`pacing: rolling`), and not from an epoch's end."""
    has_test: bool
    """Whether the job has test data, on which its result is evaluated."""
    epochs: int
    target_accuracy: float | None
    wall_time_s: float | None
    patience_epochs: int | None
    grows_over: float = 0.0
    """Fraction of the job over which its open workunits grow to all that the grid wants."""
    rate: SubtaskRate = STEADY
    """The schedule of the subtasks' learning rate."""
    target: float | None = None
    """The monitor's value that ends the job."""
    publishing: Publishing | None = None
    """The schedule by which the newest weights are offered to clients that start a workunit, or None if each starts
    from its base."""

    def slots_to_leave_free(self, slots: int, made: int) -> int:
        """Return how many of the grid's `slots` the job does not use yet when `made` of its subtasks are created.

        A job begins with few subtasks at a time and adds more (vcdl.job.growing_slots).
        """
        return slots - growing_slots(slots, made, self.grows_over * self.epochs * self.shards)

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the plan of a run."""
        job = run.job
        return cls(
            job=job.name,
            seed=job.seed,
            shards=job.data.shards,
            rolling=job.pacing.kind == "rolling",
            validate_every=job.validate_every,
            has_test=run.prepared.has_test,
            epochs=job.stop.epochs,
            target_accuracy=job.stop.target_accuracy,
            target=job.stop.target,
            wall_time_s=job.stop.wall_time_s,
            patience_epochs=job.stop.patience,
            tries=job.grid.tries,
            grows_over=job.grows_over,
            rate=run.subtask_rate,
            # A rule may compute with the base, and a codec of differences can only be decoded against it. Then the
            # snapshots of all bases since the last complete snapshot must be kept.
            needs_bases=run.rule.needs_base or job.needs_bases,
            monitor=job.monitor,
            trust=TrustPlan.of(run),
            hosts_remember=job.transport.feedback,
        )


def is_validated(validate_every: int, version: int) -> bool:
    """Return whether a version must be kept and evaluated although no epoch ends with it.

    Args:
        validate_every: Versions between two evaluations, or EVERY_EPOCH for none.
        version: The version.
    """
    return validate_every != EVERY_EPOCH and version % validate_every == 0
