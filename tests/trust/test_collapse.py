"""When measures are a collapse, and where the job goes back to."""

import math
from collections.abc import Iterable, Sequence

import pytest
from msgspec import structs

from tests.job_events import evaluated
from vcdl.journal.events import EpochClosed, RolledBack, VersionEvaluated
from vcdl.journal.monitor import Monitor
from vcdl.trust.collapse import CollapseWatch

SHARDS = 10
GOOD = [0.3, 0.5, 0.7, 0.8, 0.85, 0.88, 0.9, 0.91, 0.9, 0.92]


def regression(version: int, loss: float) -> VersionEvaluated:
    return VersionEvaluated(version, 1, "validation", samples=10, loss=loss, evaluation_s=0.1)


def watch_of(accuracies: Iterable[float], every: int = 2, ends: Sequence[int] = ()) -> CollapseWatch:
    """A watch that has seen the measures of the versions `every`, 2·`every` … ; epochs end at `ends`."""
    watch = CollapseWatch(SHARDS)
    for number, accuracy in enumerate(accuracies, start=1):
        if number * every in ends:
            watch.follow(EpochClosed(ends.index(number * every) + 1, number * every))
        watch.follow(evaluated(number * every, 1, accuracy))
    return watch


def test_measures_that_stay_far_below_are_a_collapse_from_the_first_of_them() -> None:
    collapse = watch_of([*GOOD, *[0.1] * 3], ends=[10, 20]).collapse
    assert collapse is None, "six updates and three measures are a swing"
    collapse = watch_of([*GOOD, *[0.1] * 5], ends=[10, 20]).collapse
    assert collapse is not None
    assert (collapse.version, collapse.measured, collapse.to) == (22, 0.1, 20)
    assert 0.85 < collapse.usual < 0.95


SWINGING = [0.6, 0.57, 0.12, 0.55, 0.6, 0.26, 0.52, 0.6, 0.2, 0.57, 0.3, 0.61]
"""Seen: an honest job whose shards have one class each."""


@pytest.mark.parametrize(
    "measures",
    [
        [*GOOD, 0.51, 0.9, 0.9],
        [*GOOD, 0.51, 0.62, 0.85, 0.9],
        [*GOOD, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7],
        [*SWINGING, 0.11, 0.13, 0.17, 0.32, 0.56],
        [0.9, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0],
    ],
    ids=["one swing", "a longer one", "a small fall", "swings are usual here", "too young", "nothing learned yet"],
)
def test_what_honest_jobs_do_is_none(measures: list[float]) -> None:
    for number in range(1, len(measures) + 1):
        assert watch_of(measures[:number], every=1).collapse is None


def test_a_bad_measure_asks_for_more_and_a_good_one_for_none() -> None:
    assert not watch_of(GOOD).wants_measure_of(99)
    bad = watch_of([*GOOD, 0.1])
    assert not bad.wants_measure_of(22), "that is the one that was bad"
    assert bad.wants_measure_of(23)
    assert not watch_of([*GOOD, *[0.1] * 6]).wants_measure_of(99), "enough is known"


@pytest.mark.parametrize("loss", [3.0, math.nan, math.inf])
def test_a_regression_collapses_by_its_loss(loss: float) -> None:
    watch = CollapseWatch(SHARDS)
    for version, value in enumerate([2.0, 1.2, 0.8, 0.7, 0.65, 0.6, 0.62, 0.6, *[loss] * 8], start=1):
        watch.follow(regression(version, value))
    assert watch.collapse is not None
    assert watch.collapse.version == 9


def measured_by(monitor: Monitor, values: Iterable[float]) -> CollapseWatch:
    """A watch of a job with this monitor, whose accuracy is always the same."""
    watch = CollapseWatch(SHARDS, monitor)
    for version, value in enumerate(values, start=1):
        watch.follow(
            structs.replace(evaluated(version, 1, 0.5), loss=value, metrics={"accuracy": 0.5, monitor.name: value})
        )
    return watch


@pytest.mark.parametrize(
    ("monitor", "good", "bad", "swing"),
    [
        (Monitor("auc", "max"), [0.5, 0.7, 0.9, 0.92, 0.91, 0.92], 0.5, 0.85),
        (Monitor("mean_absolute_error", "min"), [9.0, 3.0, 2.0, 1.9, 1.8, 1.8], 7.0, 3.0),
        (Monitor("loss", "min"), [2.0, 1.0, 0.5, 0.4, 0.4, 0.4], 1.5, 0.9),
        (Monitor("loss", "min", is_signed=True), [0.2, -0.5, -0.8, -0.85, -0.86, -0.86], -0.1, -0.8),
        (Monitor("loss", "min", is_signed=True), [0.5, 0.1, 0.01, -0.01, -0.02, -0.02], 0.4, 0.05),
        (Monitor("r2_score", "max"), [-3.0, -1.0, 0.5, 0.7, 0.75, 0.75, 0.75, 0.75], -2.0, 0.6),
    ],
)
def test_a_job_collapses_by_its_monitor(monitor: Monitor, good: list[float], bad: float, swing: float) -> None:
    collapse = measured_by(monitor, [*good, *[bad] * 8]).collapse
    assert collapse is not None
    assert (collapse.version, collapse.measured) == (len(good) + 1, bad)
    assert measured_by(monitor, [*good, *[swing] * 8]).collapse is None


def test_other_splits_say_nothing() -> None:
    watch = watch_of(GOOD)
    for version in range(21, 31):
        watch.follow(evaluated(version, 0, 0.1, "test"))
    assert watch.collapse is None


def gone_back(watch: CollapseWatch, *, is_good_at_first: bool) -> tuple[list[tuple[int, bool]], int]:
    """Where a job whose measures stay bad goes back to, each time anew, and its last version."""
    found, version = [], 30
    while (collapse := watch.collapse) is not None:
        found.append((collapse.to, collapse.is_again))
        version += 1
        watch.follow(RolledBack(version, collapse.to, (), collapse.version, 0.1, 0.9))
        if is_good_at_first:
            watch.follow(evaluated(version, 1, 0.9))
        for _ in range(12):
            version += 1
            watch.follow(evaluated(version, 1, 0.1))
    return found, version


def test_where_going_back_has_not_helped_it_goes_back_further_and_at_last_no_more() -> None:
    watch = watch_of([*GOOD, *[0.1] * 5], ends=[8, 14, 20])
    found, version = gone_back(watch, is_good_at_first=False)
    assert [to for to, _ in found] == [20, 14, 8]
    assert not watch.wants_measure_of(version + 50), "nothing would follow from it"
    for accuracy in [*GOOD, *[0.1] * 12]:
        version += 1
        watch.follow(evaluated(version, 1, accuracy))
        if accuracy == GOOD[-1]:
            watch.follow(EpochClosed(9, version))
    assert watch.collapse is not None, "a new good epoch begins the count again"


def test_weights_that_were_good_again_at_first_are_tried_once_more() -> None:
    """What came later ruined them: that says nothing about the good end itself."""
    watch = watch_of([*GOOD, *[0.1] * 5], ends=[8, 14, 20])
    assert gone_back(watch, is_good_at_first=True)[0] == [(20, False), (20, True), (14, True)]


def test_what_was_measured_of_dropped_versions_does_not_count() -> None:
    watch = watch_of([*GOOD, *[0.1] * 5], ends=[20])
    watch.follow(RolledBack(31, 20, tuple(range(21, 31)), 22, 0.1, 0.9))
    assert watch.collapse is None
    for version in range(23, 31):
        watch.follow(evaluated(version, 1, 0.1))
    assert watch.collapse is None
    assert watch.to_keep == [0, 20]


def test_the_good_end_itself_still_counts_after_going_back_to_it() -> None:
    """A level is the median of three measures: here the end's own, and two of what was made of it."""
    watch = watch_of([*[0.8] * 9, 0.95, *[0.1] * 4], ends=[20])
    assert watch.collapse is not None
    watch.follow(RolledBack(29, 20, tuple(range(21, 29)), 22, 0.1, 0.8))
    for version, accuracy in ((30, 0.95), (32, 0.95), *((version, 0.65) for version in range(34, 44, 2))):
        watch.follow(evaluated(version, 1, accuracy))
    assert watch.collapse is not None
    assert (watch.collapse.version, watch.collapse.usual) == (34, 0.95)


def test_an_epoch_that_ends_with_the_rollback_itself_is_no_proof_that_it_helped() -> None:
    watch = watch_of([*GOOD, *[0.1] * 5], ends=[14, 20])
    watch.follow(RolledBack(31, 20, tuple(range(21, 31)), 22, 0.1, 0.9))
    watch.follow(EpochClosed(4, 31))
    watch.follow(evaluated(31, 4, 0.9))
    assert watch.to_keep == [0, 14, 20]


def test_a_watch_keeps_what_its_answers_need_and_no_measure_more() -> None:
    watch = CollapseWatch(SHARDS)
    for version in range(1, 501):
        watch.follow(evaluated(version, 1, 0.9))
        if version % 100 == 0:
            watch.follow(EpochClosed(version // 100, version))
    assert watch.to_keep == [300, 400, 500]
    assert sum(len(kept) for kept in vars(watch).values() if isinstance(kept, list | dict)) < 100


def test_a_collapse_of_which_it_was_heard_late_is_not_found_again_after_going_back() -> None:
    """Its measures are of versions before the good end that the job goes back to: the same rollback was decided for
    ever.
    """
    watch = watch_of([*GOOD, *[0.9] * 6], every=1, ends=[10])
    watch.follow(EpochClosed(2, 40))
    watch.follow(evaluated(40, 1, 0.9))
    for version in range(31, 40, 2):
        watch.follow(evaluated(version, 1, 0.1))
    collapse = watch.collapse
    assert collapse is not None
    assert collapse.version < collapse.to == 40
    watch.follow(RolledBack(41, collapse.to, (), collapse.version, collapse.measured, collapse.usual))
    assert watch.collapse is None
