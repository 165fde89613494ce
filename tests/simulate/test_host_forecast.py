"""Forecasts on hosts of a population: ranges of the outcomes, and the fewest hosts for a deadline."""

import math

import pytest

from tests.simulate.test_weightless import job
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.host_forecast import RUNS, HostForecast, JobOnHosts, fewest_hosts, range_words

STEADY = ClientFleet(slots=1, jitter=0.0)


def of(*outcomes_s: float) -> HostForecast:
    return HostForecast(10, outcomes_s)


def test_the_range_holds_four_fifths_of_further_outcomes() -> None:
    """Of 20 outcomes, a further one is below the k-th with k / 21: a tenth is at 2.1."""
    forecast = of(*map(float, range(1, 21))).wall_s
    assert vars(forecast) == pytest.approx({"low": 2.1, "median": 10.5, "high": 18.9})


def test_runs_that_never_end_leave_the_range_open() -> None:
    assert of(*[60.0] * 17, *[math.inf] * 3).words() == "10 hosts: 60.0 seconds (60.0 to never)"
    assert of(*[math.inf] * 20).words(5.0) == "10 hosts: never: a subtask fails too often, 0% in time"
    assert of(*[math.inf] * 20).as_dict()["wall_s"] is None


def test_a_forecast_is_said_in_one_unit() -> None:
    assert range_words(of(*[3.0 * 86400] * 20).wall_s) == "3.0 days (3.0 to 3.0)"
    assert range_words(of(*[36.0 * 3600] * 20).wall_s) == "36.0 hours (36.0 to 36.0)"


def test_the_error_of_the_measured_speed_is_in_the_range() -> None:
    """Three epochs of four minutes on hosts that are alike: all that differs from run to run is their speed."""
    sure, unsure = JobOnHosts(job(), STEADY, 0.0, end_s=5.0).on(10).wall_s, JobOnHosts(job(), STEADY, 0.1).on(10).wall_s
    assert (sure.low, sure.high) == pytest.approx((725.0, 725.0))
    assert (unsure.low, unsure.median, unsure.high) == pytest.approx((720 * 0.88, 720.0, 720 * 1.137), rel=0.01)


def test_a_forecast_repeats_and_its_hosts_are_drawn_anew_in_each_run() -> None:
    fleet = STEADY.model_copy(update={"speed_ratio": 4.0, "jitter": 0.3})
    one = JobOnHosts(job(), fleet, 0.0).on(10)
    assert one == JobOnHosts(job(), fleet, 0.0).on(10)
    assert len(set(one.outcomes_s)) == RUNS


def test_the_fewest_hosts_are_searched_between_those_that_were_tried() -> None:
    asked: list[int] = []

    def on(clients: int) -> HostForecast:
        asked.append(clients)
        return HostForecast(clients, tuple(sorted(1000.0 / clients * (0.9 + 0.01 * run) for run in range(20))))

    best = fewest_hosts(on, [on(10), on(100), on(200)], 20.0)
    assert best is not None
    assert 52 <= best.clients <= 55, "20 s in 80 % of the runs takes 52.5 hosts, searched to a twentieth"
    assert len(asked) < 10
    assert best.fraction_within(20.0) >= 0.8
    assert fewest_hosts(on, [on(200), on(100)], 20.0) == on(100), "none was tried below"
    assert fewest_hosts(on, [on(10)], 20.0) is None
