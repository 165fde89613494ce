"""Many batches in one call come to the same as Keras' `train_on_batch`, to the last bit, however they are grouped."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.workunit_folder import BatchAfterBatch, ScriptedSupervisor, with_training, write_workunit
from vcdl.client.batches import order_of
from vcdl.client.inputs import read_model_json, read_shard, read_workunit
from vcdl.client.loops import BatchLoop, loop_of
from vcdl.client.train import train_workunit
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import Named

pytestmark = pytest.mark.keras

SAMPLES = 44
"""Five batches and a short one."""
GROUPS = ([0, SAMPLES], [0, 8, 16, 24, 32, 40, SAMPLES], [0, 24, SAMPLES])
"""Ends of the calls, in samples."""


class Work:
    def __init__(self, folder: Path, optimizer: str) -> None:
        """A model with dropout and batch statistics."""
        write_workunit(folder, with_training(optimizer=Named(optimizer)))
        self.workunit = read_workunit(folder)
        self.trainer = Trainer(read_model_json(folder), self.workunit.training)
        self.shard = read_shard(folder, self.workunit.training.normalisation, self.trainer.input_shapes)
        self.base = read_weights(folder / "params.h5", self.trainer.layout.size)[0]

    def trained(self, loop: Any, ends: Sequence[int]) -> tuple[Vector, list[float]]:
        self.trainer.begin(self.base, 3, 0.01, 6)
        order = order_of(3, 0, SAMPLES)
        losses: list[float] = []
        for begin, end in pairwise(ends):
            losses += loop.steps((self.shard.x, self.shard.y), order[begin:end], 8)
        return self.trainer.finish(), losses


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_and_losses_are_those_of_batch_after_batch(optimizer: str, tmp_path: Path) -> None:
    work = Work(tmp_path, optimizer)
    expected, expected_losses = work.trained(BatchLoop(work.trainer.model), GROUPS[1])
    loop = loop_of(work.trainer.model)
    for ends in (*GROUPS, GROUPS[0]):
        weights, losses = work.trained(loop, ends)
        assert losses == expected_losses
        assert weights.tobytes() == expected.tobytes()
    assert len(losses) == 6
    assert not np.array_equal(expected, work.base)


def test_another_shard_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    work = Work(tmp_path, "sgd")
    loop, order = loop_of(work.trainer.model), np.arange(16)
    work.trainer.begin(work.base, 3, 0.01, 2)
    first = loop.steps((work.shard.x, work.shard.y), order, 8)
    work.trainer.begin(work.base, 3, 0.01, 2)
    assert loop.steps((work.shard.x, work.shard.y + 1), order, 8) != first
    work.trainer.begin(work.base, 3, 0.01, 2)
    assert loop.steps((work.shard.x, work.shard.y), order, 8) == first


class FastCalls(TrainerCache):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def make(self, model_json: str, training: Any, frozen: Any = None) -> Trainer:
        calls = self.calls

        class Counting(Trainer):
            longest_call_s = 1e9

            def steps(self, x: Any, y: Any, order: Any, batch_size: int, weights: Any = None) -> list[float]:
                losses = super().steps(x, y, order, batch_size, weights)
                calls.append(len(losses))
                return losses

        return Counting(model_json, training, frozen)


def test_a_client_asks_its_host_between_calls_that_take_a_tenth_of_a_second(tmp_path: Path) -> None:
    """The first call shows how long a batch takes; the next take as many batches as may pass unasked."""
    workunit = with_training(local_epochs=2)
    supervisors = ScriptedSupervisor(), ScriptedSupervisor()
    fast, slow = FastCalls(), BatchAfterBatch()
    for supervisor, trainers in zip(supervisors, (fast, slow), strict=True):
        folder = write_workunit(tmp_path / type(trainers).__name__, workunit)
        train_workunit(folder, supervisor, trainers)
    assert fast.calls[0] == 1
    assert len(fast.calls) == supervisors[0].questions == 3
    assert sum(fast.calls) == supervisors[1].questions > 10
    updates = [(tmp_path / type(trainers).__name__ / "update.h5") for trainers in (fast, slow)]
    size = slow.make((tmp_path / "FastCalls" / "model.json").read_text(), workunit.training).layout.size
    assert read_weights(updates[0], size)[0].tobytes() == read_weights(updates[1], size)[0].tobytes()
