"""Ranges of a drawn market hold four fifths of what happened on real ones."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from tests.planner.spot_traces import traces
from vcdl.planner.deadline import DeadlineTask, follow, uniform_progress
from vcdl.planner.spot_market import OutcomeRange, SpotMarket

HOUR_S = 3600.0


def cost(spot_share: Sequence[float], step_s: float, work_s: float) -> float:
    return follow(uniform_progress, spot_share, DeadlineTask(work_s, 1.5 * work_s, 360.0, step_s), 0.3).cost


@pytest.mark.slow
@pytest.mark.parametrize("hours", [8, 24])
def test_ranges_hold_what_they_say(hours: int) -> None:
    rng, work_s = np.random.default_rng(1), hours * HOUR_S
    steps = int(1.5 * work_s / 300.0) + 1
    drawn = OutcomeRange.of([cost(SpotMarket().sample(300.0, steps, rng), 300.0, work_s) for _ in range(400)])
    inside = []
    for step_s, is_there in traces():
        length = int(1.5 * work_s / step_s) + 1
        for first in np.linspace(0, len(is_there) - length, 12).astype(int):
            inside.append(drawn.low <= cost(is_there[first : first + length], step_s, work_s) <= drawn.high)
    assert 0.72 <= np.mean(inside) <= 0.88  # 0.75 to 0.85, and the noise of a sample this small


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("hours", [8, 24])
def test_ranges_hold_for_fleets_in_several_zones(hours: int) -> None:
    """Two machines, each in a zone of its own of the same months."""
    rng, work_s = np.random.default_rng(1), hours * HOUR_S
    steps = int(1.5 * work_s / 300.0) + 1
    drawn = OutcomeRange.of([cost(SpotMarket().sample(300.0, steps, rng, 2), 300.0, work_s) for _ in range(400)])
    inside = []
    for (step_s, one), (other_step_s, another) in combinations(traces(), 2):
        if (step_s, len(one)) != (other_step_s, len(another)):
            continue  # not of the same months
        length = int(1.5 * work_s / step_s) + 1
        there = [(a + b) / 2 for a, b in zip(one, another, strict=True)]
        for first in np.linspace(0, len(there) - length, 6).astype(int):
            inside.append(drawn.low <= cost(there[first : first + length], step_s, work_s) <= drawn.high)
    assert 0.72 <= np.mean(inside) <= 0.93


def test_a_short_spell_is_no_longer_than_it_is() -> None:
    """Each was at least a step long, so capacity and its lack came in too large pieces."""
    market, rng = SpotMarket(mean=(7.0, 3.0), covariance=((1e-9, 0.0), (0.0, 1e-9))), np.random.default_rng(1)
    share = np.mean([np.mean(market.sample(900.0, 400, rng)) for _ in range(50)])
    assert share == pytest.approx(0.98, abs=0.01)
