"""Learning rates and ramps over a job, and how parallel clients raise the rate."""

import pytest

from vcdl.job.lr_schedule import _FORECAST_DAMPING, LONG_STEPS, STEADY, SubtaskRate
from vcdl.job.training import TrainingSettings
from vcdl.rules.forecast import Forecast
from vcdl.rules.ramp import Ramp, Shape


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_ramp_begins_and_ends_where_it_says(shape: Shape) -> None:
    ramp = Ramp.model_validate({"from": 0.3, "to": 0.98, "schedule": shape})
    assert (ramp.at(1, 200), ramp.at(200, 200)) == (0.3, 0.98)
    values = [ramp.at(number, 200) for number in range(1, 201)]
    assert values == sorted(values)
    assert ramp.at(500, 200) == 0.98, "whatever comes later"
    assert Ramp.model_validate({"from": 0.98, "to": 0.3, "schedule": shape}).at(1, 200) == 0.98


def test_the_rate_rises_evenly_and_falls_to_its_end_factor() -> None:
    schedule = SubtaskRate("linear", warmup=0.25, end_factor=0.5)
    assert [schedule.at(place, 8) for place in range(8)] == pytest.approx(
        [1 / 2, 1, 1, 11 / 12, 10 / 12, 9 / 12, 8 / 12, 7 / 12]
    )


def test_a_quadratic_course_stays_high_for_longer() -> None:
    rates = [SubtaskRate("quadratic", end_factor=0.2).at(place, 4) for place in range(4)]
    assert rates == pytest.approx([1.0, 0.95, 0.8, 0.55])


@pytest.mark.parametrize(
    "schedule",
    [SubtaskRate("cosine"), SubtaskRate("quadratic"), SubtaskRate("linear", 0.1), SubtaskRate("constant", 0.99)],
)
@pytest.mark.parametrize("subtasks", [1, 2, 3, 1000])
def test_no_subtask_trains_with_a_rate_of_zero_or_above_the_peak(schedule: SubtaskRate, subtasks: int) -> None:
    assert all(0 < schedule.at(place, subtasks) <= 1 for place in range(subtasks))


@pytest.mark.parametrize(
    ("steps", "open_workunits", "factor"),
    [
        (LONG_STEPS, 1, 1.0),
        (LONG_STEPS, 2, 2.0),
        (LONG_STEPS, 10, 3.0),
        (2 * LONG_STEPS, 1, 1.0),
        (4 * LONG_STEPS, 6, 1.5),
        (LONG_STEPS // 2, 1, 2.0),
        (25_000, 10, 3.0),  # docs/experiments/accuracy.md: 8 epochs of 50 shards in 62.5 steps each, ten slots
        (62_500, 10, 1.2),  # and 20
    ],
)
def test_a_short_job_takes_longer_steps(steps: int, open_workunits: int, factor: float) -> None:
    assert SubtaskRate(short_job_boost=3, steps=steps).at(0, 9, 1, open_workunits) == pytest.approx(factor)


@pytest.mark.parametrize(("open_workunits", "factor"), [(1, 4.0), (10, 6.132), (21, 8.0), (201, 16.0)])
def test_a_bound_for_one_slot_is_raised_by_the_root_of_the_uploads_that_are_averaged(
    open_workunits: int, factor: float
) -> None:
    rate = SubtaskRate(short_job_boost=4.0, steps=300, most_boost=16.0)
    assert rate.at(0, 9, 1, open_workunits) == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize(
    ("steps", "open_workunits", "factor"), [(25_000, 10, 3.0), (25_000, 40, 4.0), (4000, 10, 4.6875)]
)
def test_slots_raise_little_in_a_job_of_more_steps_in_a_row_than_a_trial_has(
    steps: int, open_workunits: int, factor: float
) -> None:
    rate = SubtaskRate(short_job_boost=4.0, steps=steps, most_boost=16.0)
    assert rate.at(0, 9, 1, open_workunits) == pytest.approx(factor)


def test_only_a_bound_that_was_tried_follows_the_slots() -> None:
    def on_ten_slots(**rate: object) -> float:
        settings = TrainingSettings.model_validate({"learning_rate": {"peak": 0.002, **rate}})
        return settings.subtask_rate([160] * 10, 2, found_boost=4.0).at(0, 20, 1, 10)

    assert on_ten_slots(short_job_boost="auto") > 4.0
    assert on_ten_slots(short_job_boost=4.0) == 4.0


def test_course_clients_and_boost_are_multiplied() -> None:
    rate = SubtaskRate("linear", end_factor=0.5, scale_with_clients=3, short_job_boost=2.0, steps=LONG_STEPS)
    assert rate.at(5, 10, active_clients=2, open_workunits=8) == pytest.approx(0.75 * 2 * 2.0)
    assert rate.at(0, 10, active_clients=8, open_workunits=8) == rate.highest == 6.0


@pytest.mark.parametrize(
    ("rate", "is_tried", "has_moments", "words"),
    [
        (STEADY, False, False, "0.002"),
        (SubtaskRate("constant", 0.05), False, True, "0.002 × course (warm-up in 5% of the job) × moments (1 or more)"),
        (
            SubtaskRate("linear", 0.1, 0.02, 4, 3.0),
            False,
            False,
            "0.002 × course (warm-up in 10% of the job, linear to 0.02) × clients at work (1 to 4) "
            "× boost of a short job (1 to 3)",
        ),
        (STEADY, True, False, "0.002 × boost of a short job (1 to 16, as a trial finds)"),
    ],
)
def test_the_formula_of_a_rate_has_the_job_s_numbers(
    rate: SubtaskRate, is_tried: bool, has_moments: bool, words: str
) -> None:
    assert rate.words(0.002, is_tried=is_tried, has_moments=has_moments) == words


def test_the_most_passes_of_a_subtask_that_ends_by_time_change_no_rate() -> None:
    def steps(**settings: float) -> int:
        return TrainingSettings.model_validate({"batch_size": 10, **settings}).steps([100, 200], epochs=3)

    assert steps(local_epochs=4) == 360
    assert steps(local_epochs=4, target_s=5.0) == steps(local_epochs=400, target_s=5.0) == 90


def test_the_rate_counts_with_the_damping_that_the_default_rule_has() -> None:
    assert Forecast().staleness_damping == _FORECAST_DAMPING
