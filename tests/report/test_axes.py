"""Labels of axes are few and round."""

import pytest

from vcdl.report.axes import round_values, time_ticks


@pytest.mark.parametrize(
    ("low", "high", "is_log", "expected"),
    [
        (0.52, 0.89, False, [0.6, 0.7, 0.8]),
        (-3, 12, False, [0, 5, 10]),
        (0.91, 0.912, False, [0.91, 0.9105, 0.911, 0.9115, 0.912]),
        (0.3, 0.9, True, [0.4, 0.6, 0.8]),
        (0.02, 3, True, [0.1, 1]),
        (0.15, 2.4, True, [0.2, 0.5, 1, 2]),
        (1e-9, 5, True, [1e-9, 1e-6, 1e-3, 1]),
    ],
)
def test_values_of_an_axis_are_round(low: float, high: float, is_log: bool, expected: list[float]) -> None:
    assert round_values(low, high, is_log) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("last_s", "expected"),
    [
        (0.4, ["0 s"]),
        (9, ["0 s", "2 s", "4 s", "6 s", "8 s"]),
        (2100, ["0 s", "10 min", "20 min", "30 min"]),
        (100_000, ["0 s", "6 h", "12 h", "18 h", "24 h"]),
        (9e5, ["0 s", "72 h", "144 h", "216 h"]),
    ],
)
def test_times_of_an_axis_are_round(last_s: float, expected: list[str]) -> None:
    ticks = time_ticks(last_s)
    assert [tick.words for tick in ticks] == expected
    assert all(0 <= tick.share <= 1 for tick in ticks)
