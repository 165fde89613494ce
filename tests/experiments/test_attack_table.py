"""The table of attacks, against figures that are computed by hand."""

from pathlib import Path

import pytest

from tests.places import EXAMPLES
from vcdl.experiments.attack_table import cells_of
from vcdl.experiments.experiment import Variant
from vcdl.experiments.hostile import EXPERIMENT
from vcdl.experiments.hostile_results import tables
from vcdl.experiments.measured import RunFigures, Uploads
from vcdl.experiments.planned_run import PlannedRun
from vcdl.job import load_job
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet

JOB = load_job(EXAMPLES / "digits.yaml")


def run(variant: str, seed: int, final: float | None, refused: int = 0, hostile: int = 0) -> RunFigures:
    planned = PlannedRun(
        variant=variant,
        epochs=6,
        seed=seed,
        job=JOB,
        fleet=ClientFleet(),
        serial=False,
        folder=RunFolder(Path("/nowhere")),
    )
    return RunFigures(
        run=planned,
        points=(),
        final=final,
        stop_reason="epochs",
        is_regression=False,
        is_given_up=final is None,
        failed=0,
        refused=refused + hostile,
        staleness_mean=1.0,
        bytes_down=2048.0,
        bytes_up=1024.0,
        honest=Uploads(100 - refused, refused),
        hostile=Uploads(10 - hostile, hostile),
        backdoor=0.25,
    )


RUNS = [
    *(run("digits, honest, off", 1, 0.90), run("digits, honest, off", 2, 0.80)),
    *(run("digits, alie, off", 1, 0.89, 2), run("digits, alie, off", 2, 0.75, 0, 5)),
    run("table, honest, off", 1, 0.7),
    run("digits, alie, default", 1, None),
]


def test_points_are_differences_to_the_honest_run_of_the_same_problem_and_seed() -> None:
    cells = {(cell.problem, cell.attack, cell.defence): cell for cell in cells_of(RUNS, EXPERIMENT.variants)}
    assert len(cells) == 4
    alie = cells["digits", "alie", "off"]
    assert alie.points == pytest.approx(-3)
    assert alie.worst_points == pytest.approx(-5)
    assert alie.seeds == 2
    assert alie.refused_honest == 2 / 200
    assert alie.refused_hostile == 5 / 20
    assert cells["digits", "", "off"].points == 0
    assert cells["digits", "alie", "default"].points == pytest.approx(-90)


def test_the_table_of_a_defence_has_a_row_for_each_attack_and_a_column_for_each_problem() -> None:
    lines = tables(cells_of(RUNS, EXPERIMENT.variants))
    assert "|  | digits | table | honest refused | hostile refused | backdoor | down, a subtask | up |" in lines
    assert "| honest | +0.0 (85.0 %) | +0.0 (70.0 %) | 0.0 % | 0.0 % | 25.0 % | 2.0 KiB | 1.0 KiB |" in lines
    assert "| alie | -3.0 |  | 1.0 % | 25.0 % | 25.0 % | 2.0 KiB | 1.0 KiB |" in lines
    assert "| alie | -90.0 ! |  | 0.0 % | 0.0 % | 25.0 % | 2.0 KiB | 1.0 KiB |" in lines


def test_a_variant_that_is_no_attack_has_no_cell() -> None:
    assert cells_of([run("serial", 1, 0.9)], [Variant("serial")]) == ()
