"""A trial of learning rates before a short job begins.

The right rate depends on model, data and batches (docs/decisions/072), and a fraction of an epoch at each rate shows
it.
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
    from vcdl.wire.weights import Vector

Losses = Callable[["Array", "Array", float], tuple[float, float]]
"""Targets, orders and the factor of the rate → mean losses of the first and of the last steps."""
_FACTORS = (1.0, 2.0, 4.0, 8.0, MOST_BOOST)
_LENGTHS = (60, 120, 240, 480)
"""Steps of a trial; one that is not believed is followed by the next."""
_JUDGED = 15
"""The last steps, whose losses are compared, because the mean of 30 names a wrong rate as often
(docs/decisions/115)."""
_ORDERS = 3
"""Orders of the samples in which the best rates are tried: one alone names half the best rate or less by chance in one
job of four (docs/decisions/115).
"""
_FINALISTS = 2
"""Rates that are tried in all orders: the best of the first one. It names the best or its neighbour."""
_TRAININGS = len(_FACTORS) + 1 + _FINALISTS * (_ORDERS - 1)
"""Trainings of a believed length: each rate, the best with exchanged targets, and the finalists in further orders."""
_DUEL = 1920
"""Steps of the last look, at the lowest and the usual rate alone, where the longest trial showed nothing, because a
plateau may end only between 960 and 1 920 steps (docs/decisions/147)."""
_MOST_OF_JOB = 0.5
"""Part of the job's steps that a trial may have, unless it takes no time: it was three times the job on small series
whose steps are slow (docs/decisions/147).
"""
_FREE_FLOPS, _FREE_STEPS = 3e9, 1000
"""A trial that needs no more takes about a second, and may be longer than the job. Steps count, too: recurrent layers
have few operations and are slow.
"""
_MOST_SLOTS = 50
"""Slots that are counted on, of more shards, because trials of jobs in 200 shards would be too short
(docs/decisions/115)."""
_BELIEVED = 0.5
"""Part of the loss without learning to which the best rate must bring it, because a trial that has hardly started
chooses by chance."""
_LEARNT = 0.95
"""The part for the longest trial, which no other follows: some losses never halve."""
_MOST_FLOPS = 3e11
"""A trial takes no more: some thirty seconds of a core."""


def trial_lengths(
    training: "TrainingSettings", shard_samples: Sequence[int], epochs: int, footprint: Footprint
) -> tuple[int, ...]:
    """Lengths, in steps, of the trials that a job may need; none if it names its rate.

    They are short compared with the steps that the job makes in a row with a slot for each shard (50 slots at most),
    and take at most half a minute of this machine.
    """
    steps = training.steps(shard_samples, epochs)
    if not training.tries_rates or steps < _LENGTHS[0]:
        return ()
    step_flops = training.batches_a_step * training.batch_size * footprint.flops_per_sample
    # With a slot for each shard a job makes this many steps in a row. A longer trial would judge a rate by steps that
    # the job never makes.
    longest = max(_LENGTHS[0], steps // min(len(shard_samples), _MOST_SLOTS))
    free = min(_FREE_STEPS, _FREE_FLOPS / step_flops)
    most = min(max(_MOST_OF_JOB * steps, free), _MOST_FLOPS / step_flops)
    lengths, spent = [], 0
    for length in _LENGTHS:
        if length > longest or spent + _TRAININGS * length > most:
            break
        lengths.append(length)
        # A length that is not believed trains no finalists, so its cost is lower than that of the last one.
        spent += (len(_FACTORS) + 1) * length
    return tuple(lengths)


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

    They begin with `begin`, weights with moments, shape (n,). Most batches are new: no other data are needed.

    Where no factor has learnt anything yet, it is the usual one. After the longest trial the lowest and the usual rate
    have a last look: the lowest is taken if it has learnt meanwhile and the usual one has not, as on noisy stripes,
    which end at a constant answer at three times the rate (15 % for 84); hands of cards learn nothing at either, and
    end 3 to 9 points higher at the usual one (docs/decisions/147).

    Raises DataError, FileUnavailable.
    """

    def prepared(length: int, orders: int) -> tuple["Array", "Array", Losses]:
        """Return targets, the orders of the samples, shape (orders, samples), and what trains on them."""
        trained = length * training.batches_a_step * training.batch_size
        samples = _some_of(shards, normalisation, orders * trained)
        passes = math.ceil(orders * trained / len(samples.y))
        order = np.concatenate([rng.permutation(len(samples.y)) for _ in range(passes)])[: orders * trained]
        x, y, weights = samples.loaded()
        return y, order.reshape(orders, -1), partial(_losses, trainer, training, begin, seed, x, weights)

    for length in lengths:
        enough = _LEARNT if length == lengths[-1] else _BELIEVED
        rng = np.random.default_rng([seed, length * training.batches_a_step])
        y, orders, losses = prepared(length, _ORDERS)
        tried = [losses(y, orders[:1], factor) for factor in _FACTORS]
        last = np.nan_to_num([each for _, each in tried], nan=math.inf, posinf=math.inf)
        best = int(np.argmin(last))
        # If every rate diverges, only the lowest one can be right.
        if not math.isfinite(last[best]):
            return _FACTORS[0], RateTrial.CHOSE
        if last[best] > enough * tried[0][0]:
            continue
        _, by_shares = losses(_mixed(y, orders[:1], training.batch_size, rng), orders[:1], _FACTORS[best])
        if last[best] > enough * by_shares:
            continue
        finalists = np.argsort(last, kind="stable")[:_FINALISTS]
        # The first order was trained above, so only the others are added, by their number.
        means = [last[one] + (_ORDERS - 1) * losses(y, orders[1:], _FACTORS[one])[1] for one in finalists]
        return _FACTORS[finalists[int(np.argmin(np.nan_to_num(means, nan=math.inf)))]], RateTrial.CHOSE
    if length < _LENGTHS[-1]:
        return USUAL_BOOST, RateTrial.UNDECIDED
    y, orders, losses = prepared(_DUEL, 1)
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
    """Return the mean losses of the first and of the last steps in these orders, at this factor of the peak rate."""
    steps = orders.shape[1] // training.batch_size
    judged = _JUDGED * training.batches_a_step
    losses = []
    for order in orders:
        trainer.begin(begin, seed, factor * training.peak_rate, steps)
        losses.append(trainer.steps(x, y, order, training.batch_size, weights))
    return float(np.mean([each[:judged] for each in losses])), float(np.mean([each[-judged:] for each in losses]))


def _mixed(y: "Array", orders: "Array", batch_size: int, rng: np.random.Generator) -> "Array":
    """Return the targets with those of each batch exchanged among its samples.

    What a model learns from these is no more than how common each target is. Until a trial has learnt more, all its
    rates look alike, and the one that is ahead is so by chance: hands of cards, parity, rare classes.
    """
    mixed = y.copy()
    for order in orders:
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size]
            mixed[batch] = y[rng.permutation(batch)]
    return mixed


def _some_of(shards: Sequence[Path], normalisation: Normalisation, most: int) -> Samples:
    """Return about `most` samples, evenly from all places of the shards, because a source may be in order."""
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
