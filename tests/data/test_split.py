"""Cutting a training set: sizes, class mixes, and that no sample is lost or used twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcdl.data.split import dirichlet, hold_out, iid, likeness, split_groups
from vcdl.errors import DataError


def labels(counts: list[int], seed: int = 0) -> np.ndarray:
    y = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(seed).permutation(y)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.lists(st.integers(7, 60), min_size=1, max_size=6), st.integers(1, 7))
def test_stratified_shards_have_all_samples_once_and_the_class_mix(counts: list[int], shards: int) -> None:
    y = labels(counts)
    cut = iid(y, shards, stratified=True, rng=rng())
    assert sorted(np.concatenate(cut)) == list(range(len(y)))
    sizes = [len(part) for part in cut]
    assert max(sizes) - min(sizes) <= 1
    for label in range(len(counts)):
        of_label = [int(np.sum(y[part] == label)) for part in cut]
        assert max(of_label) - min(of_label) <= 1


@given(st.floats(0.01, 100), st.integers(1, 30), st.integers(0, 1000))
def test_dirichlet_shards_are_never_empty_and_lose_nothing(concentration: float, shards: int, seed: int) -> None:
    y = labels([20, 10, 5])
    cut = dirichlet(y, shards, concentration, rng(seed))
    assert len(cut) == shards
    assert min(len(part) for part in cut) >= 1
    assert sorted(np.concatenate(cut)) == list(range(len(y)))


def test_a_smaller_concentration_makes_class_mixes_differ_more() -> None:
    y = labels([500] * 10)

    def unevenness(concentration: float) -> float:
        cut = dirichlet(y, 20, concentration, rng())
        return float(np.mean([np.std(np.bincount(y[part], minlength=10) / len(part)) for part in cut]))

    assert unevenness(0.1) > 2 * unevenness(1.0) > 4 * unevenness(100.0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 14))
def test_shards_by_group_keep_groups_whole_or_are_parts_of_one(counts: list[int], shards: int) -> None:
    groups = labels(counts)
    if len(groups) < shards:
        with pytest.raises(DataError, match="too few"):
            split_groups(groups, shards)
        return
    cut = split_groups(groups, shards)
    assert len(cut) == shards
    assert min(map(len, cut)) >= 1
    assert sorted(np.concatenate(cut)) == list(range(len(groups)))
    held = [set(groups[part].tolist()) for part in cut]
    if len(counts) >= shards:
        assert sum(map(len, held)) == len(counts)
        assert [min(one) for one in held] == sorted(min(one) for one in held), "neighbours stay together"
    else:
        assert all(len(one) == 1 for one in held)


def test_shards_by_group_are_as_even_as_whole_groups_allow() -> None:
    assert [len(part) for part in split_groups(labels([10] * 12), 4)] == [30, 30, 30, 30]
    assert [len(part) for part in split_groups(labels([50, 5, 5, 20, 20]), 3)] == [50, 30, 20]
    assert sorted(len(part) for part in split_groups(labels([60, 20]), 4)) == [20, 20, 20, 20]


def test_shards_of_a_class_each_are_unlike_and_mixed_ones_alike() -> None:
    y = labels([50] * 4)
    assert likeness(y, split_groups(y, 4)) == 0.0
    assert likeness(y, iid(y, 4, stratified=True, rng=rng())) == pytest.approx(1.0, abs=0.01)
    assert likeness(np.zeros(8), split_groups(np.arange(8), 2)) == 1.0, "a single class"


@given(st.lists(st.integers(3, 60), min_size=1, max_size=6), st.data())
def test_a_held_out_set_has_the_class_mix(counts: list[int], data: st.DataObject) -> None:
    y = labels(counts)
    count = data.draw(st.integers(1, len(y) // 2))  # more may take a class as a whole, see below
    keep, out = hold_out(y, count, stratified=True, rng=rng())
    assert sorted([*keep, *out]) == list(range(len(y)))
    assert len(out) == count
    for label, total in enumerate(counts):
        assert abs(int(np.sum(y[out] == label)) - total * count / len(y)) <= 1


def test_a_class_is_never_held_out_as_a_whole() -> None:
    y = labels([9, 1, 1, 1])
    for seed in range(5):
        keep, out = hold_out(y, 6, stratified=True, rng=rng(seed))
        assert set(y[keep]) == {0, 1, 2, 3}
        assert sorted([*keep, *out]) == list(range(len(y)))
    with pytest.raises(DataError, match="give x_val and y_val"):
        hold_out(labels([1, 1, 1]), 2, stratified=True, rng=rng())


def test_the_seed_decides_the_cut() -> None:
    y = labels([50, 50])
    same = zip(iid(y, 5, True, rng(1)), iid(y, 5, True, rng(1)), strict=True)
    assert all(np.array_equal(first, second) for first, second in same)
    assert not np.array_equal(iid(y, 5, True, rng(1))[0], iid(y, 5, True, rng(2))[0])


def test_more_shards_than_samples_are_refused() -> None:
    with pytest.raises(DataError, match="set data > shards to at most 8"):
        iid(labels([4, 4]), 9, stratified=False, rng=rng())
    with pytest.raises(DataError, match="set data > shards to at most 8"):
        dirichlet(labels([4, 4]), 9, 1.0, rng())


def test_a_class_too_rare_for_every_shard_is_in_as_many_as_it_can() -> None:
    y = labels([40, 4])
    shards = iid(y, 5, stratified=True, rng=rng())
    assert sorted(int(np.sum(y[shard] == 1)) for shard in shards) == [0, 1, 1, 1, 1]
    assert {len(shard) for shard in shards} == {8, 9}
