"""The success of a backdoor, measured on a model that looks at nothing but the pattern's place."""

from pathlib import Path

import pytest

from vcdl.job import Job
from vcdl.report.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.simulate.backdoor import read_backdoor_success
from vcdl.simulate.client_fleet import ClientFleet, Hostile
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


@pytest.mark.parametrize("is_hostile", [True, False])
def test_a_client_that_trains_on_the_pattern_teaches_it(tmp_path: Path, is_hostile: bool) -> None:
    hostile = (Hostile(client=0, attack="backdoor"),) if is_hostile else ()
    folder, fleet = RunFolder(tmp_path / "run"), ClientFleet(clients=1, slots=1, hostile=hostile)
    simulate(folder, JOB, fleet, RunObserver(), trainers=ShardTrainers(), measures_backdoor=True)
    success = read_backdoor_success(folder)
    assert success is not None
    assert success > 0.9 if is_hostile else success < 0.2


def test_a_run_without_the_file_was_not_measured(tmp_path: Path) -> None:
    assert read_backdoor_success(RunFolder(tmp_path)) is None
