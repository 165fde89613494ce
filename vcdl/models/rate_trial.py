"""A trial of learning rates before a short job begins.

The right rate depends on model, data and batches (docs/decisions/072), and a fraction of an epoch at each rate shows
it.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.samples import Samples, read_samples
from vcdl.job.lr_schedule import MOST_BOOST, USUAL_BOOST, RateTrial
from vcdl.models.footprint import Footprint
from vcdl.wire.workunit import Normalisation

if TYPE_CHECKING:
    from vcdl.client.trainer import Trainer
    from vcdl.job.training import TrainingSettings
    from vcdl.wire.inputs import Array
    from vcdl.wire.weights import Vector

_FACTORS = (1.0, 2.0, 4.0, 8.0, MOST_BOOST)
_LENGTHS = (60, 120, 240, 480)
"""Steps of a trial; one that is not believed is followed by the next."""
_JUDGED = 15
"""The last steps, whose losses are compared."""
_ORDERS = 3
"""Orders of the samples in which each rate is tried: one alone names half the best rate or less by chance in one job
of four (docs/decisions/115).
"""
_MOST_SLOTS = 50
"""Slots that are counted on, of more shards."""
_BELIEVED = 0.5
"""Part of what no learning gives to which the best rate must bring the losses: a trial that has hardly begun chooses by
chance.
"""
_LEARNT = 0.95
"""The part for the longest trial, which no other follows: some losses never halve."""
_MOST_FLOPS = 3e11
"""A trial takes no more: some thirty seconds of a core."""


def trial_lengths(
    training: "TrainingSettings", shard_samples: Sequence[int], epochs: int, footprint: Footprint
) -> tuple[int, ...]:
    """Lengths, in steps, of the trials that a job may need; none if it names its rate.

    They are small for this machine and beside the steps that the job makes in a row with a slot for each shard, up to
    50.
    """
    steps = training.steps(shard_samples, epochs)
    if not training.tries_rates or steps < _LENGTHS[0]:
        return ()
    step_flops = _ORDERS * len(_FACTORS) * training.batches_a_step * training.batch_size * footprint.flops_per_sample
    most = min(max(_LENGTHS[0], steps // min(len(shard_samples), _MOST_SLOTS)), _MOST_FLOPS / step_flops)
    return tuple(length for length in _LENGTHS if length <= most)


def found_boost(
    trainer: "Trainer",
    training: "TrainingSettings",
    begin: "Vector",
    shards: Sequence[Path],
    normalisation: Normalisation,
    seed: int,
    lengths: Sequence[int],
) -> tuple[float, RateTrial]:
    """Return the factor of the peak rate that brings the loss down most in the first steps.

    They begin with `begin`, weights with moments, shape (n,). Where no factor has learnt anything yet, it is the usual
    one, and after the longest trial the lowest: on noisy stripes nothing was learnt in 480 steps, and three times the
    lowest rate then ended at a constant answer (15 % for 84); on hands of cards with 128 steps in a row it is 9 points
    better than the lowest (docs/decisions/072). Most batches are new: no other data are needed.

    Raises DataError, FileUnavailable.
    """
    for length in lengths:
        enough = _LEARNT if length == lengths[-1] else _BELIEVED
        batches = length * training.batches_a_step
        trained = batches * training.batch_size
        samples = _some_of(shards, normalisation, _ORDERS * trained)
        rng, count = np.random.default_rng([seed, batches]), len(samples.y)
        passes = math.ceil(_ORDERS * trained / count)
        order = np.concatenate([rng.permutation(count) for _ in range(passes)])[: _ORDERS * trained]
        x, y, weights = samples.loaded()
        parts = order.reshape(_ORDERS, -1)
        losses = partial(_losses, trainer, training, begin, seed, x, parts, weights)
        tried = [losses(y, factor) for factor in _FACTORS]
        last = np.nan_to_num([each for _, each in tried], nan=math.inf, posinf=math.inf)
        best = int(np.argmin(last))
        if not math.isfinite(last[best]):
            return _FACTORS[0], RateTrial.CHOSE
        if last[best] <= enough * tried[0][0]:
            _, by_shares = losses(_mixed(y, parts, training.batch_size, rng), _FACTORS[best])
            if not last[best] > enough * by_shares:
                return _FACTORS[best], RateTrial.CHOSE
    return USUAL_BOOST if length < _LENGTHS[-1] else _FACTORS[0], RateTrial.UNDECIDED


def _losses(
    trainer: "Trainer",
    training: "TrainingSettings",
    begin: "Vector",
    seed: int,
    x: "Array",
    parts: "Array",
    weights: "Array | None",
    y: "Array",
    factor: float,
) -> tuple[float, float]:
    """Return the mean losses of the first and of the last steps in all orders, at this factor of the peak rate."""
    steps = parts.shape[1] // training.batch_size
    judged = _JUDGED * training.batches_a_step
    losses = []
    for part in parts:
        trainer.begin(begin, seed, factor * training.peak_rate, steps)
        losses.append(trainer.steps(x, y, part, training.batch_size, weights))
    return float(np.mean([each[:judged] for each in losses])), float(np.mean([each[-judged:] for each in losses]))


def _mixed(y: "Array", parts: "Array", batch_size: int, rng: np.random.Generator) -> "Array":
    """Return the targets with those of each batch exchanged among its samples.

    What a model learns from these is no more than how common each target is. Until a trial has learnt more, all its
    rates look alike, and the one that is ahead is so by chance: hands of cards, parity, rare classes.
    """
    mixed = y.copy()
    for part in parts:
        for begin in range(0, len(part), batch_size):
            batch = part[begin : begin + batch_size]
            mixed[batch] = y[rng.permutation(batch)]
    return mixed


def _some_of(shards: Sequence[Path], normalisation: Normalisation, most: int) -> Samples:
    """About so many samples, evenly from shards and from all places in them: a source may be in order."""
    from_each = math.ceil(most / len(shards))
    parts = []
    for path in shards[:most]:
        whole = read_samples(path, normalisation)
        places = np.arange(0, len(whole.y), max(1, len(whole.y) // from_each))
        parts.append(whole.taken(places))  # a copy: the data set need not fit into memory
    weights = [part.weights for part in parts if part.weights is not None]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate(weights) if weights else None,
    )
