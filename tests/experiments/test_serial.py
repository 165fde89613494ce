"""The serial control is ordinary training of one model: the same weights as without any of our machinery."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.serial import OneTrainer
from benchmarks.experiments.training_here import TrainingHere
from tests.client.workunit_folder import WORKUNIT, write_workunit
from vcdl.client.batches import Batches
from vcdl.client.inputs import read_shard
from vcdl.client.trainer import Trainer
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded
from vcdl.wire.layout import Vector
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Workunit

pytestmark = pytest.mark.keras

RATES = (0.01, 0.003, 0.02)
"""A schedule, one rate a subtask."""


def subtask(number: int) -> Workunit:
    training = replace(WORKUNIT.training, learning_rate=RATES[number])
    return replace(WORKUNIT, shard=number, base_version=number, seed=number, training=training)


def staged(folder: RunFolder, files: Path, workunit: Workunit, start: Vector, layout: str) -> Staged:
    params = folder.snapshot(workunit.base_version)
    write_weights(params, start, ParamsHeader(workunit.job, workunit.base_version, layout).to_json())
    return Staged(workunit, files / "model.json", params, files / "shard.npz")


def test_the_optimizer_is_carried_on_and_the_learning_rate_is_each_subtasks_own(tmp_path: Path) -> None:
    folder, files = RunFolder(tmp_path / "run"), write_workunit(tmp_path / "files", dropout=0.0)
    folder.create()
    plain = Trainer((files / "model.json").read_text(), WORKUNIT.training)
    start, _ = read_weights(files / "params.h5", plain.layout.size)
    shard = read_shard(files, WORKUNIT.training.normalisation, plain.input_shapes)
    plain.begin(start, 0, RATES[0], 6)
    training, weights = TrainingHere(folder, OneTrainer()), start
    for number, rate in enumerate(RATES):
        workunit = subtask(number)
        training.begin(staged(folder, files, workunit, weights, plain.layout.fingerprint), 0.0)
        uploaded = training.outcome(workunit.name)
        assert isinstance(uploaded, Uploaded)
        weights, _ = read_weights(uploaded.path, plain.layout.size)
        training.done(workunit.name, None)

        plain._optimizer.learning_rate = rate
        batches = Batches(workunit.seed, len(shard), WORKUNIT.training.batch_size, WORKUNIT.training.local_epochs)
        position = 0
        while position < batches.total:
            batch = batches.at(position)
            plain.steps(shard.x, shard.y, batch, len(batch))
            position += len(batch)
        assert weights.tolist() == plain.finish().tolist()
    assert not np.array_equal(weights, start)
    assert list(folder.slots.iterdir()) == list(folder.uploads.iterdir()) == []
