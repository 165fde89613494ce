"""Divide samples among shards and sets.

Pure functions from labels and a seed to arrays of indices.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vcdl.data.rows import Array
from vcdl.errors import DataError

Indices = npt.NDArray[np.intp]


def hold_out(y: Array, count: int, stratified: bool, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Split samples at random into those to keep and those to hold out, and return the indices of both.

    If samples are stratified, each class keeps at least one, so fewer than `count` may be held out.

    Args:
        y: Labels, shape (n,).
        count: Number of samples to hold out.
        stratified: Give both parts the class mix of all samples, to within one sample of each class.
        rng: The random stream.

    Raises:
        DataError: There are too few samples.
    """
    if not 0 < count < len(y):
        raise DataError(f"cannot cut {count} validation samples from {len(y)}: give data > validation a smaller number")
    order = _by_label(y, rng) if stratified else rng.permutation(len(y))
    # Take samples at equal distances from an order sorted by label: each class gives its share, to within one sample.
    picked = np.floor((np.arange(count) + 0.5) * len(y) / count).astype(np.intp)
    keep, out = np.delete(order, picked), order[picked]
    if stratified:
        lost, first = np.unique(y[out], return_index=True)
        first = first[~np.isin(lost, y[keep])]  # all samples of these classes were held out: one of each returns
        keep, out = np.concatenate([keep, out[first]]), np.delete(out, first)
        if not len(out):
            raise DataError(
                f"none of the {len(y)} samples can be held out for validation, because each class needs one for "
                "training: give x_val and y_val"
            )
    return rng.permutation(keep), rng.permutation(out)


def iid(y: Array, shards: int, stratified: bool, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Split samples at random into shards whose sizes differ by at most one, and return the indices of each.

    Args:
        y: Labels, shape (n,).
        shards: Number of shards.
        stratified: Let the counts of each class differ by at most one, too.
        rng: The random stream.

    Raises:
        DataError: There are fewer samples than shards.
    """
    _check_enough(y, shards)
    order = _by_label(y, rng) if stratified else rng.permutation(len(y))
    # Deal from an order sorted by label, so that each shard gets its share of every class. The permutation then mixes
    # the classes within the shard.
    return tuple(rng.permutation(order[first::shards]) for first in range(shards))


def dirichlet(y: Array, shards: int, concentration: float, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Split samples into shards of unequal class mix, and return the indices of each shard.

    Each class is distributed by shares drawn from Dir(concentration, …). Source: Yurochkin et al. 2019, arXiv
    1905.12022. An empty shard gets a sample of the largest.

    Args:
        y: Labels, shape (n,).
        shards: Number of shards.
        concentration: The smaller it is, the more the shards differ.
        rng: The random stream.

    Raises:
        DataError: There are fewer samples than shards.
    """
    _check_enough(y, shards)
    dealt: list[list[Indices]] = [[] for _ in range(shards)]
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        proportions = rng.dirichlet(np.full(shards, concentration))
        # Round the cumulated shares, so that the parts always add up to the class.
        cuts = np.rint(np.cumsum(proportions)[:-1] * len(members)).astype(np.intp)
        for taken, part in zip(dealt, np.split(members, cuts), strict=True):
            taken.append(part)
    return tuple(rng.permutation(part) for part in _without_empty([np.concatenate(parts) for parts in dealt]))


def split_groups(groups: Array, shards: int) -> tuple[Indices, ...]:
    """Split samples into shards of whole neighbouring groups, as even as these allow; return the indices of each.

    If there are fewer groups than shards, each shard is a part of one group.

    Args:
        groups: Group of each sample, shape (n,); neighbours have consecutive numbers.
        shards: Number of shards.

    Raises:
        DataError: There are fewer samples than shards.
    """
    _check_enough(groups, shards)
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    if len(begins) < shards:
        return tuple(part for group in _split_evenly(np.split(order, begins[1:]), shards) for part in group)
    cuts = [0]
    for left in range(shards - 1, 0, -1):
        even = cuts[-1] + (len(order) - cuts[-1]) / (left + 1)
        free = begins[np.searchsorted(begins, cuts[-1], side="right") : len(begins) - left + 1]
        cuts.append(int(free[np.abs(free - even).argmin()]))
    return tuple(np.split(order, cuts[1:]))


def _split_evenly(groups: Sequence[Indices], shards: int) -> list[list[Indices]]:
    """Split groups into `shards` parts in total: each further part goes to the group whose parts are the largest."""
    parts = [1] * len(groups)
    for _ in range(shards - len(groups)):
        parts[max(range(len(groups)), key=lambda at: len(groups[at]) / parts[at])] += 1
    return [np.array_split(group, count) for group, count in zip(groups, parts, strict=True)]


def likeness(y: Array, cut: Sequence[Indices]) -> float:
    """Return how similar the shards' class mixes are, from 0 (each has one class) to 1 (all have the same mix).

    It is the ratio of the shards' mean label entropy to that of all labels.

    Args:
        y: Labels, shape (n,).
        cut: The indices of each shard.
    """
    of_all = _entropy(y)
    return sum(len(part) * _entropy(y[part]) for part in cut) / len(y) / of_all if of_all else 1.0


def _entropy(y: Array) -> float:
    shares = np.unique(y, return_counts=True)[1] / len(y)
    return float(-(shares * np.log(shares)).sum())


def _check_enough(y: Array, shards: int) -> None:
    if len(y) < shards:
        raise DataError(
            f"{len(y)} training samples are too few for {shards} shards: set data > shards to at most {len(y)}"
        )


def _by_label(y: Array, rng: np.random.Generator) -> Indices:
    """Return the indices of all samples, class by class, in random order within each class."""
    shuffled = rng.permutation(len(y))
    return shuffled[np.argsort(y[shuffled], kind="stable")]


def _without_empty(parts: Sequence[Indices]) -> list[Indices]:
    filled = list(parts)
    for index, part in enumerate(filled):
        if len(part) == 0:
            largest = max(range(len(filled)), key=lambda other: len(filled[other]))
            filled[index], filled[largest] = filled[largest][:1], filled[largest][1:]
    return filled
