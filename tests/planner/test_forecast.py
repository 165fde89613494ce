"""Time, money and the recommendation follow from speeds and prices."""

import math
from dataclasses import replace

import pytest

from vcdl.planner.curve import LearningCurve
from vcdl.planner.forecast import Choice, ChoiceForecast, Work, forecast, recommend, undisturbed_s
from vcdl.planner.spot_market import OutcomeRange
from vcdl.planner.throughput import HostType, Servers, Subtask, throughput

SLOT = HostType("slot", 1, fixed_s=1.0, sample_s=0.01)
WORK = Work(subtasks=1000, subtask=Subtask(100), shards=100, start_s=4.0, end_s=1.0)
SERVER = Servers()


def many(count: int) -> HostType:
    return HostType("slot", count, fixed_s=1.0, sample_s=0.01)


def test_hosts_add_up_until_the_server_is_full() -> None:
    server = Servers(1, fold_s=0.25)
    speeds = [throughput([many(count)], server, WORK.subtask) for count in (1, 2, 4, 8, 16)]
    assert [speed.subtasks_per_s for speed in speeds] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert (speeds[0].limit, speeds[-1].limit) == ("hosts", "servers")
    two = throughput([many(16)], Servers(2, fold_s=0.25), WORK.subtask)
    assert two.subtasks_per_s == pytest.approx(6.8)
    assert [speed.staleness for speed in speeds] == [0.0, 1.0, 3.0, 7.0, 15.0]


def test_what_is_on_the_way_leaves_slots_idle_where_a_host_has_no_more() -> None:
    busy = HostType("host", 1, fixed_s=1.0, sample_s=0.01, away_s=8.0)
    assert busy.subtasks_per_s(100) == pytest.approx(0.1)
    fed = HostType("host", 1, fixed_s=1.0, sample_s=0.01, away_s=8.0, at_once=10)
    assert fed.subtasks_per_s(100) == pytest.approx(0.5)


def test_time_has_start_and_tail() -> None:
    assert undisturbed_s(WORK, [SLOT], SERVER) == pytest.approx(5.0 + 2000.0)
    assert undisturbed_s(WORK, [many(10)], SERVER) == pytest.approx(5.0 + 200.0 + 0.9)
    assert undisturbed_s(WORK, [HostType("none", 0, 1.0, 0.01)], SERVER) == math.inf


def test_slots_beyond_the_shards_train_nothing() -> None:
    """320 slots on 20 shards were forecast at a ninth of the time that they took."""
    work = replace(WORK, shards=20)
    few, as_many, twice, all_idle = (undisturbed_s(work, [many(slots)], SERVER) for slots in (5, 20, 40, 320))
    assert few == pytest.approx(5.0 + 400.0, rel=0.01), "slots are full"
    assert as_many > 1.05 * (5.0 + 100.0), "each epoch waits for its slowest subtask"
    assert twice > 1.1 * (5.0 + 50.0)
    assert all_idle == pytest.approx(twice, rel=0.1)


def test_a_short_run_waits_for_its_evaluator_and_a_long_one_does_not() -> None:
    work = replace(WORK, evaluator_s=300.0)
    assert undisturbed_s(work, [many(1000)], SERVER) == pytest.approx(301.0)
    assert undisturbed_s(work, [many(10)], SERVER) == pytest.approx(301.0)
    assert undisturbed_s(work, [SLOT], SERVER) == pytest.approx(5.0 + 2000.0)


def test_the_range_is_as_wide_as_the_speed_moves() -> None:
    steady, moving = (forecast(replace(WORK, error=error), Choice("one", (SLOT,)), SERVER) for error in (0.05, 0.2))
    widths = [one.wall_s.high / one.wall_s.low - 1 for one in (steady, moving)]
    assert widths[0] == pytest.approx(0.13, abs=0.03)
    assert widths[1] > 3 * widths[0]


def test_money_is_hours_times_price_and_spot_is_cheaper_but_slower() -> None:
    listed = Choice("listed", (many(10),), on_demand_usd_per_h=10.0)
    spot = Choice("spot", (many(10),), on_demand_usd_per_h=10.0, spot_usd_per_h=3.0)
    work = Work(subtasks=100_000, subtask=Subtask(100), shards=1000)
    paid, cheap = (forecast(work, one, SERVER, deadline_s=12 * 3600.0) for one in (listed, spot))
    assert paid.usd.median == pytest.approx(10.0 * 20_000 / 3600, rel=0.02)
    assert cheap.usd.median < paid.usd.median
    assert cheap.wall_s.median > paid.wall_s.median
    assert (paid.kept, cheap.kept) == (1.0, 1.0)


def test_the_cheapest_within_the_time_and_the_fastest_within_the_money() -> None:
    def of(name: str, wall_s: float, usd: float) -> ChoiceForecast:
        speed = throughput([SLOT], SERVER, WORK.subtask)
        return ChoiceForecast(
            Choice(name, (SLOT,)),
            speed,
            OutcomeRange(wall_s, wall_s, wall_s),
            OutcomeRange(usd, usd, usd),
            float(wall_s <= 60),
        )

    fast, middle, slow, dear = of("fast", 10, 9), of("middle", 50, 4), of("slow", 90, 1), of("dear", 55, 20)
    every = [slow, dear, middle, fast]
    assert recommend(every, deadline_s=60).chosen is middle
    assert recommend(every, budget_usd=5).chosen is middle
    assert recommend(every).chosen is slow
    assert recommend(every, deadline_s=60, budget_usd=2).chosen is None
    assert recommend(every).front == (fast, middle, slow)


def test_a_learning_curve_is_drawn_on() -> None:
    curve = LearningCurve.fit([0.95 - 0.3 * epoch**-0.8 for epoch in range(1, 9)])
    assert curve is not None
    assert curve.at(20) == pytest.approx(0.95 - 0.3 * 20**-0.8, abs=2e-3)
    assert curve.epochs_to(0.93) == pytest.approx(29.5, rel=0.1)
    assert curve.epochs_to(0.99) is None
    assert LearningCurve.fit([0.5, 0.6]) is None
