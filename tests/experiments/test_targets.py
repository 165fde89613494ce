"""What attacks on some samples reach: a model of one layer learns a pattern, and one false label, at once."""

from pathlib import Path

import pytest

from benchmarks.experiments.hostile_fleet import Attack, Hostile, HostileFleet
from benchmarks.experiments.hostile_run import HostileRun
from benchmarks.experiments.targets import Targets, leave_targets, read_targets
from benchmarks.experiments.training_here import TrainingHere
from vcdl.job import Job
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.simulation import simulate

JOB = Job.model_validate(
    {
        "name": "tiny",
        "model": {"builtin": {"name": "mlp", "units": []}},
        "data": {"dataset": "digits", "shards": 3},
        "training": {"learning_rate": 0.02},
        "stop": {"epochs": 2},
        "trust": "own",
    }
)


def targets(folder: RunFolder, attack: Attack) -> Targets:
    fleet = HostileFleet(clients=1, slots=1, hostile=(Hostile(client=0, attack=attack),))
    simulate(folder, JOB, fleet, RunObserver(), TrainingHere(folder, ShardTrainers()), HostileRun)
    leave_targets(folder)
    found = read_targets(folder)
    assert found is not None
    return found


@pytest.mark.process
@pytest.mark.keras
def test_each_attack_reaches_its_own_target_and_no_other(tmp_path: Path) -> None:
    honest = targets(RunFolder(tmp_path / "honest"), "none")
    assert honest.recall > 0.7
    assert honest.backdoor < 0.2
    backdoor = targets(RunFolder(tmp_path / "backdoor"), "backdoor")
    assert backdoor.backdoor > 0.9
    assert backdoor.recall > 0.7
    targeted = targets(RunFolder(tmp_path / "targeted"), "targeted")
    assert targeted.recall < 0.1
    assert targeted.backdoor < 0.2


def test_a_run_without_the_file_was_not_measured(tmp_path: Path) -> None:
    assert read_targets(RunFolder(tmp_path)) is None
