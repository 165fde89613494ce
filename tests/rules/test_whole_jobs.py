"""A small job under every rule, with real training: it ends, and its journal and uploads give the same weights
again.
"""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments.serial import OneTrainer
from benchmarks.experiments.training_here import TrainingHere
from tests.end_to_end.vcdl_process import applied
from vcdl.job import Job, load_frozen_job, save_job
from vcdl.journal.events import StopReason
from vcdl.journal.observer import RunObserver
from vcdl.models.build import initial_weights
from vcdl.rules.base import Update
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.virtual_run import VirtualRun
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import WorkunitName

pytestmark = pytest.mark.keras

SHARDS = 6
FLEET = ClientFleet(clients=3, slots=1, speed_ratio=4.0, subtask_s=10.0)


def job(update: Any) -> Job:
    return Job.model_validate(
        {
            "name": "small",
            "model": {"builtin": {"name": "mlp", "units": [8]}},
            "data": {"dataset": "digits", "shards": SHARDS, "validation": 0.2},
            "training": {
                "share_optimizer_state": "none",
                "learning_rate": {"peak": 0.01, "schedule": "cosine", "warmup": 0.3, "end_factor": 0.1},
            },
            "update": update,
            "stop": {"epochs": 1},
            "validate": {"every": "epoch", "samples": 100},
        }
    )


OF_EACH_KIND = [
    "vc_asgd",
    {"rule": "trimmed_mean", "buffer": 1, "trim": 0},  # needs the weights that a client began with
    {"rule": "fedbuff", "buffer": 4},  # keeps a state
]
ALL_OTHERS = [
    {"rule": "vc_asgd", "alpha": {"from": 0.3, "to": 0.9}},
    {"rule": "fedbuff", "buffer": 2, "staleness": "constant"},
    {"rule": "fedbuff", "buffer": 2, "staleness": {"name": "hinge", "threshold": 0}},
    "forecast",
    {"rule": "trimmed_mean", "buffer": 3, "trim": 1},
]


@pytest.mark.parametrize(
    "update", [*OF_EACH_KIND, *(pytest.param(rule, marks=pytest.mark.nightly) for rule in ALL_OTHERS)], ids=str
)
def test_a_job_ends_and_can_be_folded_again(update: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    folder.kept_uploads.mkdir()
    monkeypatch.setattr("vcdl.loop.work_generator.discard_kept_uploads", lambda *_: None)
    save_job(job(update), folder.job_file)

    assert VirtualRun(folder, FLEET, TrainingHere(folder, OneTrainer()), RunObserver()).run() == StopReason.EPOCHS

    rule, weights = load_frozen_job(folder.job_file).update, [initial_weights(folder.model_file.read_text(), 1)]
    whole = rule.state.begun(weights[0].copy())
    updates = sorted(applied(tmp_path), key=lambda row: row.version)
    for row in updates:
        client, _ = read_weights(folder.kept_upload(row.version, row.workunit), weights[0].size)
        facts = (WorkunitName.parse(row.workunit).epoch, row.staleness, row.samples, row.fraction, row.version)
        update = Update(client, *facts, weights[row.base_version], updates=SHARDS)
        weight = rule.apply(rule.state.rows(whole), update)
        weights.append(rule.state.weights(whole).copy())
        assert weight == row.weight, "as the journal has it"
    assert len(updates) == SHARDS
    assert max(row.staleness for row in updates) > 0, "or the rules are not told apart"
    last, _ = read_weights(folder.snapshot(SHARDS), weights[0].size)
    assert last.tobytes() == weights[-1].tobytes()
