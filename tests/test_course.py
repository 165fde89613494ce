"""Numbers that move over the course of a job."""

import pytest

from vcdl.course import STEADY, Ramp, RateCourse, Shape, between


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_ramp_begins_and_ends_where_it_says(shape: Shape) -> None:
    ramp = Ramp(0.3, 0.98, shape, 200)
    assert (ramp.at(1), ramp.at(200)) == (0.3, 0.98)
    values = [ramp.at(number) for number in range(1, 201)]
    assert values == sorted(values)
    assert ramp.at(500) == 0.98, "whatever comes later"
    assert Ramp(0.98, 0.3, shape, 200).at(1) == 0.98


def test_a_job_of_one_update_has_the_first_value() -> None:
    assert Ramp(0.3, 0.98, "linear", 1).at(1) == 0.3


def test_cosine_is_slow_at_both_ends() -> None:
    assert between(0.0, 1.0, 0.5, "cosine") == pytest.approx(0.5)
    assert between(0.0, 1.0, 0.1, "cosine") == pytest.approx(0.0245, abs=1e-4)
    assert between(0.0, 1.0, 0.1, "linear") == pytest.approx(0.1)


def test_a_steady_rate_is_the_peak_to_the_last_bit() -> None:
    assert {STEADY.at(place, 7) for place in range(7)} == {1.0}


def test_the_rate_rises_evenly_and_falls_to_its_floor() -> None:
    course = RateCourse("linear", warm_up=0.25, floor=0.5)
    assert [course.at(place, 8) for place in range(8)] == pytest.approx(
        [1 / 2, 1, 1, 11 / 12, 10 / 12, 9 / 12, 8 / 12, 7 / 12]
    )


@pytest.mark.parametrize("course", [RateCourse("cosine"), RateCourse("linear", 0.1), RateCourse("constant", 0.99)])
@pytest.mark.parametrize("subtasks", [1, 2, 3, 1000])
def test_no_subtask_trains_with_a_rate_of_zero_or_above_the_peak(course: RateCourse, subtasks: int) -> None:
    assert all(0 < course.at(place, subtasks) <= 1 for place in range(subtasks))


def test_the_pilots_best_setting() -> None:
    course = RateCourse("cosine", warm_up=0.05, floor=0.02)
    assert course.at(0, 400) == pytest.approx(1 / 20)
    assert course.at(20, 400) == 1.0
    assert course.at(399, 400) == pytest.approx(0.02, abs=1e-4)
