"""Claims that cannot be right are left out, and no honest one is: slow hosts, first hosts, clocks that differ."""

import random

import pytest

from vcdl.checks.claims import ClaimCheck, believed_times_s, believed_train_s


@pytest.mark.parametrize("claimed", [0.0, 2.3, -5.0, 1000.0])
def test_the_first_losses_are_believed_within_reason(claimed: float) -> None:
    assert ClaimCheck().loss(claimed) == claimed


@pytest.mark.parametrize("claimed", [1e30, -1e30, 1001.0])
def test_absurd_losses_are_left_out_from_the_first_upload_on(claimed: float) -> None:
    assert ClaimCheck().loss(claimed) is None


@pytest.mark.parametrize(
    ("known", "believed", "left_out"),
    [
        ([2.3, 2.2, 2.1, 2.2, 2.0], [0.0, 20.0, -3.0], [1e3, -1e3, 300.0]),
        ([1e6, 2e6, 1e6, 3e6, 1e6], [1e6, 5e7, 0.0], [1e12, -1e12]),
        ([0.0] * 10, [0.9, 0.0], [2.0, -1e300]),
        ([-3.0, -3.1, -2.9, -3.0, -3.0], [-3.0, 4.0], [1e4, -1e4]),
    ],
)
def test_later_ones_are_of_the_size_of_the_others(
    known: list[float], believed: list[float], left_out: list[float]
) -> None:
    check = ClaimCheck.of(known)
    assert [check.loss(loss) for loss in believed] == believed
    assert [check.loss(loss) for loss in left_out] == [None] * len(left_out)


def test_lies_do_not_become_the_measure_while_most_are_honest() -> None:
    dice, check = random.Random(1), ClaimCheck()
    for number in range(300):
        loss = 1e30 if dice.random() < 0.3 else 2.0 + dice.random()
        if number >= 50:
            assert (check.loss(loss) is None) == (loss == 1e30)
        check.accept(loss)


def test_a_loss_that_falls_by_orders_of_magnitude_is_believed_all_the_way() -> None:
    check = ClaimCheck()
    for number in range(500):
        loss = 2.3 * 0.98**number
        assert check.loss(loss) == loss
        check.accept(loss)


@pytest.mark.parametrize(
    ("claimed", "age_s"), [(105.0, 100.0), (1e308, 1e5), (10.0, -3600.0)], ids=["longer", "a lie", "a clock set back"]
)
def test_more_training_than_there_was_time_is_left_out(claimed: float, age_s: float) -> None:
    assert believed_train_s(claimed, age_s, None) is None


def test_a_host_may_be_ten_times_slower_or_faster_than_it_was_and_not_a_thousand_times() -> None:
    assert [believed_train_s(100 * factor, None, 100.0) for factor in (0.1, 1, 10)] == [10.0, 100.0, 1000.0]
    assert [believed_train_s(100 * factor, None, 100.0) for factor in (0.0, 0.001, 1000)] == [None, None, None]


@pytest.mark.parametrize(
    ("times_s", "train_s", "age_s"),
    [
        ({"start": 4.0, "first": 1.0}, 3.0, 7.0),  # the first batch is a part of the training
        ({"start": 4.0}, 3.0, 6.0),  # clocks differ
        ({"host": 1e6}, 3.0, None),
    ],
)
def test_stages_that_are_possible_are_believed(times_s: dict[str, float], train_s: float, age_s: float | None) -> None:
    assert believed_times_s(times_s, train_s, age_s) == times_s


@pytest.mark.parametrize(
    ("times_s", "train_s", "age_s"),
    [
        ({"start": 40.0}, 3.0, 10.0),
        ({"start": -1.0}, 3.0, 10.0),
        ({"first": 9.0}, 3.0, 10.0),
        ({"host": 1e300, "start": 1e300}, 3.0, None),
        ({"start": 1.0}, None, 10.0),
    ],
)
def test_all_stages_are_left_out_when_they_are_not(
    times_s: dict[str, float], train_s: float | None, age_s: float | None
) -> None:
    assert believed_times_s(times_s, train_s, age_s) == {}
