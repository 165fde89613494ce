"""The range of the time left holds four fifths of what comes, where intervals stay what they are."""

import random

from vcdl.planner.time_left import time_left


def test_it_holds_what_it_says_and_narrows_with_what_is_known() -> None:
    dice, inside = random.Random(1), 0
    for _ in range(500):
        came_s = [0.0]
        for _ in range(129):
            came_s.append(came_s[-1] + dice.expovariate(1.0))
        between = time_left(100, came_s[:30])
        assert between is not None
        inside += between[0] <= came_s[129] - came_s[29] <= between[1]
    assert 0.75 <= inside / 500 <= 0.87


def test_it_is_unknown_before_three_and_narrow_for_a_steady_run() -> None:
    assert time_left(10, [1.0, 2.0]) is None
    assert time_left(10, [1.0, 2.0, 3.0]) is not None
    assert time_left(10, [5.0, 5.0, 5.0]) is None, "all at one moment: nothing says how long the next takes"
    low, high = time_left(10, [float(second) for second in range(30)]) or (0.0, 0.0)
    assert 9.0 < low < 10.0 < high < 11.0
