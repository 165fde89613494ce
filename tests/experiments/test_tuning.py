"""A cell takes the rate that was best in its trials, and its table shows the runs of other seeds."""

from dataclasses import replace

import pytest

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.measured import RunFigures
from benchmarks.experiments.tuned_table import lines_of
from benchmarks.experiments.tuning import trials, tuned
from tests.experiments.test_comparison import run

CELL = Tuned("adam ten", row="adam", column="ten slots", rates=(0.1, 0.2, 0.4))
EXPERIMENT = Experiment("title", "about", (CELL,))


def tried(rate: float, final: float | None, *, is_regression: bool = False) -> RunFigures:
    figures = replace(run(f"adam ten at {rate:g}", 101, [0.5], 100), final=final)
    return replace(figures, is_regression=is_regression)


def test_each_rate_is_tried_over_the_same_course() -> None:
    assert [(cell.name, cell.job) for cell in trials(EXPERIMENT).variants] == [
        (f"adam ten at {rate}", (f"training.learning_rate={{peak: {rate}, schedule: linear, end_factor: 0.02}}",))
        for rate in ("0.1", "0.2", "0.4")
    ]


@pytest.mark.parametrize(
    ("finals", "is_regression", "best"),
    [((0.8, 0.9, 0.7), False, 0.2), ((0.8, None, float("nan")), False, 0.1), ((0.8, 0.9, 0.7), True, 0.4)],
)
def test_the_best_rate_is_taken(finals: tuple[float | None, ...], is_regression: bool, best: float) -> None:
    runs = [tried(rate, final, is_regression=is_regression) for rate, final in zip(CELL.rates, finals, strict=True)]
    (cell,) = tuned(EXPERIMENT, runs).variants
    assert cell == CELL.at(best)


def test_the_table_has_mean_spread_and_rate_of_a_cell() -> None:
    cell = CELL.at(0.2)
    runs = [run(cell.name, seed, [final], 100) for seed, final in ((1, 0.90), (2, 0.92))]
    assert list(lines_of([cell], runs))[:3] == ["| | ten slots |", "|---|---|", "| adam | 91.0 ± 1.4 (0.2) |"]
