"""Ranges of a drawn market hold four fifths of what happened on real ones."""

import numpy as np
import pytest

from tests.planner.spot_traces import traces
from vcdl.planner.deadline import DeadlineTask, follow, uniform_progress
from vcdl.planner.spot_market import OutcomeRange, SpotMarket

HOUR_S = 3600.0


def cost(is_there: list[bool], step_s: float, work_s: float) -> float:
    return follow(uniform_progress, is_there, DeadlineTask(work_s, 1.5 * work_s, 360.0, step_s), 0.3).cost


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
