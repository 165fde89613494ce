"""The server's own first step for jobs of strangers: the scale of honest training, before any client is known.

The server trains a subtask on its held-out data from the initial weights, as a client would, at the highest learning
rate that a workunit may get.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vcdl.job import Job
from vcdl.models.trial import divergence_error
from vcdl.trust.bounds import Bounds
from vcdl.wire.layout import Vector

if TYPE_CHECKING:
    from vcdl.client.trainer import Trainer
    from vcdl.data.samples import Samples


_RESTING_STEPS = 100
"""Steps at rate 0 that give version 0 its moments: so few that Adam's soon follow the clients' gradients. Moments from
the end of a training, where gradients are small, made first steps sixteen times too long, and on JAX every unit of an
MLP died of it (docs/measured/boinc.md, "Mixed hosts")."""


@dataclass(frozen=True)
class OwnStep:
    """The result of the server's own training."""

    begin: Vector
    """Version 0, shape (n,): the initial weights with their moments; moments of zeros would have another scale than the
    clients'."""
    lengths: tuple[float, ...]
    """The first row of the table of step_norms (vcdl.trust.bounds), as at the job's peak rate; empty if not bounded."""


def first_step(
    job: Job, trainer: "Trainer", initial: Vector, samples: int, held_out: Callable[[], "Samples"], rate: float
) -> OwnStep:
    """Train the server's own first step. If clients are the submitter's own, only return the initial weights.

    Args:
        job: The job's settings.
        trainer: The model.
        initial: Weights with fresh moments, shape (n,).
        samples: Samples of a subtask.
        held_out: Loads the samples to train on; called only if needed.
        rate: The highest factor on the peak rate that a workunit may get.

    Raises:
        JobError: The training diverges.
    """
    return (
        _train_subtask(job, trainer, initial, samples, held_out(), rate)
        if job.is_for_strangers
        else OwnStep(initial, ())
    )


def _train_subtask(
    job: Job, trainer: "Trainer", initial: Vector, samples: int, held_out: "Samples", rate: float
) -> OwnStep:
    """Train a subtask of `samples` samples and return its step lengths, starting from moments trained at rate 0.

    Args:
        job: Its settings.
        trainer: The model.
        initial: Weights with fresh moments, shape (n,).
        samples: Samples of the subtask.
        held_out: The samples to train on, repeated as often as needed.
        rate: The highest factor on the peak rate that a workunit may get.

    Raises:
        JobError: The training diverges.
    """
    x, y, sample_weights = held_out.load(samples)
    training, begin = job.training, initial.copy()
    weights = trainer.layout.model.size
    rng = np.random.default_rng([job.seed, len(x)])
    taken = samples * training.local_epochs
    order = np.concatenate([rng.permutation(len(x)) for _ in range(-(-taken // len(x)))])[:taken]
    steps = -(-taken // training.batch_size)

    def train(order: np.ndarray, factor: float) -> Vector:
        trainer.begin(begin, job.seed, factor * training.peak_rate, steps)
        trainer.steps(x, y, order, training.batch_size, sample_weights)
        return trainer.finish()

    # Only the moments change: the weights of version 0 stay those of the submitter (decision 150).
    if weights < initial.size:
        begin[weights:] = train(order[: _RESTING_STEPS * training.batch_size], 0.0)[weights:]
    # Start from the new moments, because the first clients do.
    lengths = Bounds(trainer.layout, job.trust.clip, ()).row_of_step(train(order, rate), begin, rate)
    if not np.isfinite(lengths).all():
        raise divergence_error(training, x)
    return OwnStep(begin, tuple(float(length) for length in lengths))
