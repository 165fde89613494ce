"""Uniform Progress keeps deadlines, on traces of real spot capacity and whatever a market does."""

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.deadline_policies import POLICIES, least_cost
from tests.planner.spot_traces import traces
from vcdl.planner.deadline import DeadlineTask, follow, spot_only, uniform_progress

HOUR_S = 3600.0
SPOT_PRICE = 0.3
SHORT = DeadlineTask(work_s=6000.0, deadline_s=9000.0, restart_s=60.0, step_s=60.0)


@given(st.lists(st.booleans(), min_size=300, max_size=300), st.floats(1.1, 2.5))
def test_a_deadline_with_room_for_a_restart_is_kept(is_there: list[bool], room: float) -> None:
    work_s = 100 * 300.0
    outcome = follow(uniform_progress, is_there, DeadlineTask(work_s, work_s * room, 120.0, 300.0), SPOT_PRICE)
    assert outcome.is_kept


def test_without_spot_all_is_on_demand_and_with_it_all_is_spot() -> None:
    dark = follow(uniform_progress, [False] * 200, SHORT, SPOT_PRICE)
    assert dark.is_kept
    assert dark.on_demand_s >= 6000.0
    bright = follow(uniform_progress, [True] * 200, SHORT, SPOT_PRICE)
    assert (bright.on_demand_s, bright.restarts) == (0.0, 1)
    assert bright.cost == pytest.approx(6060.0 / 3600 * SPOT_PRICE)


def test_machines_that_spot_capacity_gives_work_while_others_are_missing() -> None:
    """Half of the fleet for 100 min, then all of it: the job needs no machine on demand, and is paid as spot."""
    roomy = DeadlineTask(work_s=6000.0, deadline_s=12000.0, restart_s=0.0, step_s=60.0)
    outcome = follow(spot_only, [0.5] * 100 + [1.0] * 100, roomy, SPOT_PRICE)
    assert (outcome.wall_s, outcome.on_demand_s) == (6000.0 + 3000.0, 0.0)
    assert outcome.cost == pytest.approx(6000.0 / 3600 * SPOT_PRICE)


def test_on_demand_stands_in_for_the_missing_half_alone() -> None:
    """Always half of the fleet, and too little time for half: the other half is paid on demand while it is needed."""
    tight = DeadlineTask(work_s=6000.0, deadline_s=7500.0, restart_s=60.0, step_s=60.0)
    outcome = follow(uniform_progress, [0.5] * 200, tight, SPOT_PRICE)
    assert outcome.is_kept
    assert 0.4 * 6000 < outcome.on_demand_s < 0.75 * 6000


@pytest.mark.slow
@pytest.mark.parametrize("room", [1.25, 1.5])
def test_real_capacity(room: float) -> None:
    """The deadline is kept in every start; the cost lies within 10 % of the cheapest policy that keeps it, chosen for
    each start in hindsight.
    """
    dice, work_s, restart_s = random.Random(1), 8 * HOUR_S, 0.1 * HOUR_S
    paid, best, bound, ratios = 0.0, 0.0, 0.0, []
    for step_s, is_there in traces():
        steps = int(room * work_s / step_s) + 1
        for _ in range(6):
            first = dice.randrange(len(is_there) - steps)
            window, task = is_there[first : first + steps], DeadlineTask(work_s, room * work_s, restart_s, step_s)
            each = {name: follow(policy, window, task, SPOT_PRICE) for name, policy in POLICIES.items()}
            ours = each["uniform progress"]
            assert ours.is_kept
            paid += ours.cost
            cheapest = min(one.cost for one in each.values() if one.is_kept)
            best += cheapest
            ratios.append(ours.cost / cheapest)
            bound += least_cost(window, task, SPOT_PRICE)
    assert paid <= 1.10 * best
    assert median(ratios) <= 1.01
    assert bound <= paid
