"""The experiments are data: each is in order, whatever job it is given."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import vcdl.experiments
from tests.places import EXAMPLES
from vcdl.commands.experiment import command
from vcdl.errors import JobError
from vcdl.experiments import NAMES, experiment
from vcdl.experiments.planned_run import planned_runs

TRAINED = [name for name in NAMES if experiment(name).variants]


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("job", ["digits", "fashion_mnist"])
def test_every_variant_s_settings_are_ones_that_job_and_fleet_take(name: str, job: str, tmp_path: Path) -> None:
    runs = planned_runs(experiment(name), EXAMPLES / f"{job}.yaml", tmp_path, (1, 2), (1,))
    assert len(runs) == 2 * len(experiment(name).variants)
    assert {(run.job.seed, run.fleet.seed, run.job.stop.epochs) for run in runs} == {(1, 1, 1), (2, 2, 1)}
    assert {run.job.stop.target_accuracy for run in runs} == {None}


@pytest.mark.parametrize("name", TRAINED)
def test_every_run_has_a_folder_of_its_own_and_differs_from_the_others(name: str, tmp_path: Path) -> None:
    runs = planned_runs(experiment(name), EXAMPLES / "digits.yaml", tmp_path, (1, 2))
    assert len({run.folder.path for run in runs}) == len(runs)
    others = [run for run in runs if not run.variant.endswith("robust")]  # whose settings may be the default's
    same = [(run.epochs, run.seed, run.job, run.fleet, run.serial) for run in others]
    assert all(same.count(one) == 1 for one in same)


@pytest.mark.parametrize("name", TRAINED)
def test_the_control_is_one_of_the_variants(name: str) -> None:
    assert experiment(name).control in {None, *(variant.name for variant in experiment(name).variants)}


def test_the_list_has_every_experiment_there_is() -> None:
    folder = Path(vcdl.experiments.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if "EXPERIMENT = " in path.read_text(encoding="utf-8")}
    assert {name.replace("-", "_") for name in NAMES} == found


def test_the_document_lists_every_experiment() -> None:
    text = (EXAMPLES.parent / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in NAMES)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(JobError, match="figures-2-3, figures-4-5"):
        experiment("figure-7")


def test_what_the_user_sets_wins_over_a_variant(tmp_path: Path) -> None:
    runs = planned_runs(
        experiment=experiment("accuracy"),
        job_file=EXAMPLES / "digits.yaml",
        out=tmp_path,
        seeds=(1,),
        epochs=(2,),
        overrides=["training.batch_size=7"],
    )
    assert {run.job.training.batch_size for run in runs} == {7}


def test_runs_are_planned_seed_by_seed_and_long_ones_first(tmp_path: Path) -> None:
    runs = planned_runs(experiment("accuracy"), EXAMPLES / "digits.yaml", tmp_path, (1, 2))
    order = [(run.seed, run.epochs) for run in runs]
    assert order == sorted(order, key=lambda one: (one[0], -one[1]))


@pytest.mark.parametrize(
    "option", [["--seeds", "1"], ["--epochs", "2"], ["--set", "seed=1"], ["--processes", "1"], ["job.yaml"]]
)
def test_an_experiment_without_runs_refuses_what_would_set_something_of_them(option: list[str]) -> None:
    result = CliRunner().invoke(command, ["store", *option])
    assert result.exit_code == click.UsageError.exit_code
    assert f"store trains nothing and takes no {option[0].replace('job.yaml', 'JOB.yaml')}" in result.output
