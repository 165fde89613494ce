"""The table of attacks, against figures that are computed by hand."""

import pytest

from benchmarks.experiments.attack_table import Points, rows_of
from benchmarks.experiments.hostile import EXPERIMENT
from benchmarks.experiments.hostile_results import tables
from benchmarks.experiments.measured import RunFigures, Uploads
from benchmarks.experiments.targets import Targets
from tests.experiments.figures import figures, planned

ALIE = "alie, 2 of 10, 6x, default"


def run(
    variant: str,
    seed: int,
    final: float | None,
    *,
    refused: int = 0,
    hostile: int = 0,
    targets: Targets | None = None,
    found_after: tuple[int, ...] = (),
) -> RunFigures:
    return figures(
        planned(variant, seed, 6), final=final, is_given_up=final is None, refused=refused + hostile,
        honest=Uploads(100 - refused, refused), hostile=Uploads(10 - hostile, hostile), targets=targets,
        honest_out=refused, liars=2 if "alie" in variant else 0, found_after=found_after,
    )  # fmt: skip


RUNS = [
    run("digits, honest, default", 1, 0.90, targets=Targets(recall=0.9, backdoor=0.1)),
    run("digits, honest, default", 2, 0.80, targets=Targets(recall=0.8, backdoor=0.1)),
    run(f"digits, {ALIE}", 1, 0.89, refused=2, targets=Targets(recall=0.9, backdoor=0.3), found_after=(4, 9)),
    run(f"digits, {ALIE}", 2, 0.75, hostile=5, targets=Targets(recall=0.5, backdoor=0.2), found_after=(5,)),
    run("table, honest, default", 1, 0.7),
    run(f"table, {ALIE}", 1, None),
]


def shown(points: Points | None) -> list[float]:
    return [] if points is None else [points.mean, points.worst]


def test_points_are_differences_to_the_honest_run_of_the_same_problem_and_seed() -> None:
    honest, alie = rows_of(RUNS, EXPERIMENT.variants)
    assert (honest.attack, honest.hosts, honest.liars, alie.attack) == ("honest", 0, 0, "alie")
    assert (alie.hosts, alie.speed, alie.defence) == (2, 6, "default")
    assert honest.points == Points(0, 0)
    assert alie.problems == {"digits": pytest.approx(-3), "table": pytest.approx(-70)}
    assert shown(alie.points) == pytest.approx([(-1 - 5 - 70) / 3, -70])
    assert shown(alie.recall) == pytest.approx([-15, -30])
    assert shown(alie.backdoor) == pytest.approx([15, 20])
    assert alie.refused_honest == {"digits": 2 / 200, "table": 0.0}
    assert alie.refused_hostile == 5 / 30
    assert (alie.honest_out, alie.liars, alie.found_after, alie.given_up, alie.runs) == (2, 6, (4, 9, 5), 1, 3)


def test_a_row_tells_problems_means_and_who_was_found() -> None:
    lines = tables(rows_of(RUNS, EXPERIMENT.variants))
    assert lines[2].startswith("|  | hosts | speed | digits | table | mean | worst run | honest refused |")
    assert (
        "| honest |  |  | +0.0 (85.0 %) | +0.0 (70.0 %) | +0.0 | +0.0 | 0.0 % | 0.0 % | 0 |  |  | +0.0, +0.0 | "
        "+0.0, +0.0 | 0 of 3 |" in lines
    )
    assert (
        "| alie | 2 | 6 × | -3.0 | -70.0 | -25.3 | -70.0 | 1.0 % | 16.7 % | 2 | 3 of 6 | 5 | -15.0, -30.0 | "
        "+15.0, +20.0 | 1 of 3 |" in lines
    )
