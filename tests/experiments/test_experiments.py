"""The experiments are data: each is in order, whatever job it is given."""

from pathlib import Path
from typing import get_args

import pytest

import benchmarks.experiments
from benchmarks.experiments import NAMES, experiment
from benchmarks.experiments.hostile_fleet import Attack, load_fleet
from benchmarks.experiments.planned_run import PlannedRun, planned_runs
from tests.places import EXAMPLES

ONE_ATTACK = ("honest, default", "replay, 1 of 10, 6x, default")
PART = {"hostile": ["^digits|(honest|statistics).*off", "honest|[23] of 10, (1|12)x"]}
"""A part that stands for the whole, where that has hundreds of variants."""
TRAINED = [name for name in NAMES if experiment(name).variants]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "job"),
    [(name, job) for name in TRAINED for job in ("digits", "fashion_mnist") if job == "digits" or name != "hostile"],
)
def test_every_variant_s_settings_are_ones_that_job_and_fleet_take(name: str, job: str, tmp_path: Path) -> None:
    chosen = experiment(name).only(PART.get(name, []))
    runs = planned_runs(chosen, EXAMPLES / f"{job}.yaml", tmp_path, (1, 2), (1,))
    assert len(runs) == 2 * len(chosen.variants)
    assert {(run.job.seed, run.fleet.seed, run.job.stop.epochs) for run in runs} == {(1, 1, 1), (2, 2, 1)}
    assert {run.job.stop.target_accuracy for run in runs} == {None}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_every_run_has_a_folder_of_its_own_and_differs_from_the_others(name: str, tmp_path: Path) -> None:
    runs = planned_runs(experiment(name).only(PART.get(name, [])), EXAMPLES / "digits.yaml", tmp_path, (1, 2))
    assert len({run.folder.path for run in runs}) == len(runs)
    others = [run for run in runs if not run.variant.endswith("robust")]  # whose settings may be the default's
    same = [(run.epochs, run.seed, run.job, run.fleet, run.serial) for run in others]
    assert all(same.count(one) == 1 for one in same)


def test_the_list_has_every_experiment_there_is() -> None:
    folder = Path(benchmarks.experiments.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if "EXPERIMENT = " in path.read_text(encoding="utf-8")}
    assert {name.replace("-", "_") for name in NAMES} == found


def test_the_document_lists_every_experiment() -> None:
    text = (EXAMPLES.parent / "docs" / "experiments" / "index.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in NAMES)


def test_what_the_user_sets_wins_over_a_variant(tmp_path: Path) -> None:
    runs = planned_runs(
        experiment=experiment("accuracy"), job_file=EXAMPLES / "digits.yaml", out=tmp_path, seeds=(1,), epochs=(2,),
        overrides=["training.batch_size=7", "data.shards=9"],
    )  # fmt: skip
    assert {run.job.training.batch_size for run in runs if not run.serial} == {7}
    assert {run.job.data.shards for run in runs} == {9}


def test_the_serial_control_keeps_its_own_settings(tmp_path: Path) -> None:
    def serial(*overrides: str) -> list[PlannedRun]:
        runs = planned_runs(
            experiment=experiment("accuracy"), job_file=EXAMPLES / "digits.yaml", out=tmp_path, seeds=(1,), epochs=(2,),
            overrides=overrides,
        )  # fmt: skip
        return [run for run in runs if run.serial]

    assert serial("training.batch_size=7", "training.learning_rate=0.5") == serial()
    assert serial()


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["^digits, alie, .*off"], ["digits, honest, default", "digits, alie, 2 of 10, 1x, off"]),
        (["digits|waves", "replay, 1 .*6x"], [f"{p}, {a}" for p in ("digits", "waves") for a in ONE_ATTACK]),
    ],
)
def test_a_part_is_made_with_what_it_is_compared_with(patterns: list[str], names: list[str]) -> None:
    assert [variant.name for variant in experiment("hostile").only(patterns).variants] == names


def test_every_attack_of_the_simulator_is_in_the_experiment() -> None:
    fleets = {fleet for variant in experiment("hostile").variants for fleet in variant.fleet}
    attacks = {hostile.attack for fleet in fleets for hostile in load_fleet(None, [fleet]).hostile}
    assert attacks == set(get_args(Attack))
