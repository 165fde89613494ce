"""A trial of learning rates before a short job begins: what it wants depends on model, data and batches
(docs/decisions/072), and a fraction of an epoch at each rate shows it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.samples import Samples, read_samples
from vcdl.models.footprint import Footprint
from vcdl.wire.workunit import Normalisation

if TYPE_CHECKING:
    from vcdl.client.trainer import Trainer
    from vcdl.job.training import TrainingSettings
    from vcdl.wire.weights import Vector

_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_STEPS = 60
_JUDGED = 15
"""The last steps, whose losses are compared."""
_MOST_FLOPS = 1e11
"""A trial takes no more: some ten seconds of a core."""


def is_tried(training: "TrainingSettings", steps: int, footprint: Footprint) -> bool:
    """Whether the job leaves its rate to a trial, which is small enough beside so many `steps`, and here."""
    samples = len(_FACTORS) * _STEPS * training.batches_a_step * training.batch_size
    return training.tries_rates and steps >= _STEPS and samples * footprint.flops_per_sample <= _MOST_FLOPS


def found_boost(
    trainer: "Trainer",
    training: "TrainingSettings",
    begin: "Vector",
    shards: Sequence[Path],
    normalisation: Normalisation,
    seed: int,
) -> float:
    """The factor of the peak rate that brings the loss down most in the first steps, from `begin`, weights with
    moments, shape (n,). Most batches are new: no other data are needed. Raises DataError, FileUnavailable.
    """
    batches = _STEPS * training.batches_a_step
    samples = _some_of(shards, normalisation, batches * training.batch_size)
    rng, count = np.random.default_rng([seed, batches]), len(samples.y)
    passes = math.ceil(batches * training.batch_size / count)
    order = np.concatenate([rng.permutation(count) for _ in range(passes)])[: batches * training.batch_size]
    x, y, weights = samples.loaded()
    losses = []
    for factor in _FACTORS:
        trainer.begin(begin, seed, factor * training.peak_rate, batches)
        judged = trainer.steps(x, y, order, training.batch_size, weights)[-_JUDGED * training.batches_a_step :]
        losses.append(float(np.mean(judged)))
    return _FACTORS[int(np.argmin(np.nan_to_num(losses, nan=math.inf, posinf=math.inf)))]


def _some_of(shards: Sequence[Path], normalisation: Normalisation, most: int) -> Samples:
    """About so many samples, evenly from shards and from all places in them: a source may be in order."""
    from_each = math.ceil(most / len(shards))
    wholes = [read_samples(path, normalisation) for path in shards[:most]]
    parts = [whole.taken(slice(None, None, max(1, len(whole.y) // from_each))) for whole in wholes]
    weights = [part.weights for part in parts if part.weights is not None]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate(weights) if weights else None,
    )
