"""The table of an experiment, against figures that are computed by hand."""

import pytest

from benchmarks.experiments.comparison import compare
from benchmarks.experiments.measured import Point, RunFigures
from benchmarks.experiments.written import table
from tests.experiments.figures import figures, planned


def run(variant: str, seed: int, tested: list[float], epoch_s: float, final: float | None = None) -> RunFigures:
    """A run whose epochs take `epoch_s` each and end at these accuracies."""
    points = tuple(
        Point(epoch=n, wall_s=n * epoch_s, validation=0.5, validation_min=0.4, validation_max=0.6, test=test)
        for n, test in enumerate(tested, start=1)
    )
    return figures(planned(variant, seed, len(tested)), points=points, final=final or tested[-1])


RUNS = [
    *(run("serial", 1, [0.7, 0.80], 100), run("serial", 2, [0.7, 0.82], 100)),
    *(run("ours", 1, [0.8, 0.79], 10), run("ours", 2, [0.7, 0.79], 10)),
    *(run("serial", 1, [0.7, 0.8, 0.9], 100), run("ours", 1, [0.7, 0.815, 0.9], 10)),
]


def test_mean_spread_and_difference_are_over_the_seeds_of_one_length() -> None:
    rows = compare(RUNS, "serial").rows
    assert [(row.variant, row.epochs, row.seeds) for row in rows] == [
        *(("serial", 2, 2), ("ours", 2, 2)),
        *(("serial", 3, 1), ("ours", 3, 1)),
    ]
    assert rows[0].mean == pytest.approx(0.81)
    assert rows[0].spread == pytest.approx(0.01 * 2**0.5)
    assert rows[1].difference == pytest.approx(-0.02)
    assert rows[3].difference == pytest.approx(0.0)
    assert rows[3].spread is None


def test_the_goal_is_the_control_after_its_shortest_run() -> None:
    compared = compare(RUNS, "serial")
    assert compared.goal == pytest.approx(0.81)
    short, long = compared.rows[1], compared.rows[3]
    assert (short.reached_s, short.reached_share) == (None, None)
    assert long.reached_s == 20
    assert long.reached_share == pytest.approx(0.1)


def test_the_mean_over_the_seeds_must_reach_the_goal_not_each_of_them_nor_one() -> None:
    serial, high = run("serial", 1, [0.7, 0.81], 100), run("ours", 1, [0.82, 0.82, 0.9], 10)
    low, steady = run("ours", 2, [0.7, 0.801, 0.79], 12), run("ours", 2, [0.7, 0.7, 0.7], 12)
    assert compare([serial, high, low], "serial").rows[1].reached_s == 22
    assert compare([serial, high, steady], "serial").rows[1].reached_s is None


def test_the_table_says_all_of_it() -> None:
    lines = table(compare(RUNS, "serial"))
    assert lines[0].endswith("| accuracy | against serial | virtual time | reaches 81.00 % after | of its time |")
    assert lines[2] == "| serial | 2 | 81.00 % ± 1.41 % | – | 3 min | 3 min | 1.00 |"
    assert lines[3] == "| ours | 2 | 79.00 % ± 0.00 % | -2.00 points | 0 min | – | – |"
