"""Try learning rates on the server before a short job begins.

The right rate depends on model, data and batches (docs/decisions/072), and a fraction of an epoch at each rate shows
it. A trial trains a few steps at each of five multiples of the job's peak rate. It is conclusive if the best rate has
lowered the loss clearly, and clearly further than the same training with targets exchanged within each batch, from
which nothing but the targets' frequencies can be learnt. A conclusive trial trains the two best rates in further orders
of the samples, and their mean loss decides. An inconclusive trial is repeated with twice the steps. If the longest one
is inconclusive, the lowest and the usual rate are compared once over many more steps.
"""

import math
from collections.abc import Callable, Sequence
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
    from vcdl.wire.layout import Vector

Losses = Callable[["Array", "Array", float], tuple[float, float]]
"""Maps (targets, orders, factor of the rate) to the mean losses of the first and of the last steps."""
_FACTORS = (1.0, 2.0, 4.0, 8.0, MOST_BOOST)
_LENGTHS = (60, 120, 240, 480)
"""Lengths of the trials in steps. After an inconclusive trial the next longer one follows."""
_JUDGED = 15
"""Number of last steps whose losses are compared, because the mean of 30 names a wrong rate as often
(docs/decisions/115)."""
_ORDERS = 3
"""Orders of the samples in which the best rates are tried: one alone names half the best rate or less by chance in one
job of four (docs/decisions/115).
"""
_FINALISTS = 2
"""Rates that are tried in all orders: the two best of the first order, which finds the best rate or one next to it."""
_TRAININGS = len(_FACTORS) + 1 + _FINALISTS * (_ORDERS - 1)
"""Trainings of a conclusive trial: each rate, the best with exchanged targets, and the finalists in further orders."""
_DUEL = 1920
"""Steps of the final comparison of the lowest and the usual rate after the longest trial was inconclusive, because a
plateau may end only between 960 and 1 920 steps (docs/decisions/147)."""
_MOST_OF_JOB = 0.5
"""Fraction of the job's steps that the trials may take, unless they are free: without a bound they took half of the
time of a job on small series whose steps are slow (docs/decisions/147)."""
_FREE_FLOPS, _FREE_STEPS = 3e9, 1000
"""Floating-point operations and steps below which trials may be longer than the job, since they take about a second.
Steps count, too, because recurrent layers have few operations and are slow."""
_MOST_SLOTS = 50
"""Largest number of slots that is assumed for a job. Without this limit the trials of a job in 200 shards would be too
short (docs/decisions/115)."""
_BELIEVED = 0.5
"""A trial is conclusive if the best rate brings the loss below this fraction of the loss without learning. A trial that
has hardly started to learn would choose by chance."""
_LEARNT = 0.95
"""The same fraction for the longest trial, after which there is no other: some losses never halve."""
_MOST_FLOPS = 3e11
"""Limit of the trials' floating-point operations, so that they take at most some thirty seconds of a core."""


def trial_lengths(
    training: "TrainingSettings", shard_samples: Sequence[int], epochs: int, footprint: Footprint
) -> tuple[int, ...]:
    """Return the lengths, in steps, of the trials that a job may need; none if it sets its rate or is too short.

    No trial except the shortest is longer than the job's steps, divided by its shards (at most 50): the steps in a row
    of a job with a slot for each shard. Together the trials take at most half as many steps as the job, unless they
    take no noticeable time.

    Args:
        training: The job's section `training`.
        shard_samples: Number of samples of each shard.
        epochs: Passes of the job over all shards.
        footprint: Cost of the job's model.
    """
    steps = training.steps(shard_samples, epochs)
    if not training.tries_rates or steps < _LENGTHS[0]:
        return ()
    step_flops = training.batches_a_step * training.batch_size * footprint.flops_per_sample
    # A job with a slot for each shard makes this many steps in a row. A longer trial would judge a rate by steps that
    # the job never makes.
    longest = max(_LENGTHS[0], steps // min(len(shard_samples), _MOST_SLOTS))
    free = min(_FREE_STEPS, _FREE_FLOPS / step_flops)
    most = min(max(_MOST_OF_JOB * steps, free), _MOST_FLOPS / step_flops)
    lengths, spent = [], 0
    for length in _LENGTHS:
        if length > longest or spent + _TRAININGS * length > most:
            break
        lengths.append(length)
        # An inconclusive trial trains no finalists, so it costs less than the last one.
        spent += (len(_FACTORS) + 1) * length
    return tuple(lengths)


def find_boost(
    trainer: "Trainer",
    training: "TrainingSettings",
    begin: "Vector",
    shards: Sequence[Path],
    normalisation: Normalisation,
    seed: int,
    lengths: Sequence[int],
) -> tuple[float, RateTrial]:
    """Try multiples of the peak rate in turn, and return the one that lowers the loss most in the first steps.

    Training losses suffice for the comparison, because most batches are new. If all rates diverge, the result is the
    lowest one. If no trial is conclusive, the result is the usual factor. But if the longest trial was inconclusive as
    well, the lowest and the usual rate are compared over more steps, and the lowest wins only if its loss is more than
    5 % lower. On noisy stripes three times the lowest rate ends in a constant answer (15 % instead of 84). Hands of
    cards learn nothing at either rate, and end 3 to 9 points higher at the usual one (docs/decisions/147).

    Args:
        trainer: Trains the job's model; its weights and optimizer state are changed.
        training: The job's section `training`.
        begin: Weights with moments to begin each training with, shape (n,).
        shards: The job's shards.
        normalisation: The normalisation of their samples.
        seed: Seed of the samples' orders.
        lengths: The result of `trial_lengths`, at least one.

    Returns:
        The factor, and whether a trial was conclusive.

    Raises:
        DataError: A shard is damaged.
        FileUnavailable: A shard cannot be read.
    """

    def prepare(length: int, orders: int) -> tuple["Array", "Array", Losses]:
        """Return targets, the orders of the samples, shape (orders, samples), and the function that trains on them."""
        trained = length * training.batches_a_step * training.batch_size
        samples = _some_of(shards, normalisation, orders * trained)
        passes = math.ceil(orders * trained / len(samples.y))
        order = np.concatenate([rng.permutation(len(samples.y)) for _ in range(passes)])[: orders * trained]
        x, y, weights = samples.load()
        return y, order.reshape(orders, -1), partial(_losses, trainer, training, begin, seed, x, weights)

    for length in lengths:
        enough = _LEARNT if length == lengths[-1] else _BELIEVED
        rng = np.random.default_rng([seed, length * training.batches_a_step])
        y, orders, losses = prepare(length, _ORDERS)
        tried = [losses(y, orders[:1], factor) for factor in _FACTORS]
        last = np.nan_to_num([each for _, each in tried], nan=math.inf, posinf=math.inf)
        best = int(np.argmin(last))
        # If every rate diverges, only the lowest one can be right.
        if not math.isfinite(last[best]):
            return _FACTORS[0], RateTrial.CHOSE
        if last[best] > enough * tried[0][0]:
            continue
        _, by_shares = losses(
            _shuffle_within_batches(y, orders[:1], training.batch_size, rng), orders[:1], _FACTORS[best]
        )
        if last[best] > enough * by_shares:
            continue
        finalists = np.argsort(last, kind="stable")[:_FINALISTS]
        # The first order was trained above, so only the others are added, by their number.
        means = [last[one] + (_ORDERS - 1) * losses(y, orders[1:], _FACTORS[one])[1] for one in finalists]
        return _FACTORS[finalists[int(np.argmin(np.nan_to_num(means, nan=math.inf)))]], RateTrial.CHOSE
    if length < _LENGTHS[-1]:
        return USUAL_BOOST, RateTrial.UNDECIDED
    y, orders, losses = prepare(_DUEL, 1)
    (_, lowest), (_, usual) = (losses(y, orders, factor) for factor in (_FACTORS[0], USUAL_BOOST))
    return USUAL_BOOST if usual * _LEARNT <= lowest else _FACTORS[0], RateTrial.UNDECIDED


def _losses(
    trainer: "Trainer",
    training: "TrainingSettings",
    begin: "Vector",
    seed: int,
    x: "Array",
    weights: "Array | None",
    y: "Array",
    orders: "Array",
    factor: float,
) -> tuple[float, float]:
    """Train once in each order of the samples, from `begin`; return the mean losses of the first and last steps."""
    steps = orders.shape[1] // training.batch_size
    judged = _JUDGED * training.batches_a_step
    losses = []
    for order in orders:
        trainer.begin(begin, seed, factor * training.peak_rate, steps)
        losses.append(trainer.steps(x, y, order, training.batch_size, weights))
    return float(np.mean([each[:judged] for each in losses])), float(np.mean([each[-judged:] for each in losses]))


def _shuffle_within_batches(y: "Array", orders: "Array", batch_size: int, rng: np.random.Generator) -> "Array":
    """Return the targets, shuffled within each batch.

    From these a model can learn only how common each target is. Until a trial has learnt more than that, all its rates
    look alike, and one of them leads by chance, as for hands of cards, parity or rare classes.
    """
    mixed = y.copy()
    for order in orders:
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size]
            mixed[batch] = y[rng.permutation(batch)]
    return mixed


def _some_of(shards: Sequence[Path], normalisation: Normalisation, most: int) -> Samples:
    """Return about `most` samples, evenly spaced over the shards, because a source may be sorted."""
    from_each = math.ceil(most / len(shards))
    parts = []
    for path in shards[:most]:
        whole = read_samples(path, normalisation)
        places = np.arange(0, len(whole.y), max(1, len(whole.y) // from_each))
        parts.append(whole.take(places))  # a copy: the data set need not fit into memory
    weights = [part.weights for part in parts if part.weights is not None]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate(weights) if weights else None,
    )
