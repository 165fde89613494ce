"""A small workunit on disk, and hosts and a trainer that tell what happened."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.client.batches import Order
from vcdl.client.supervisor import Request
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.wire.frozen import write_frozen
from vcdl.wire.layout import Layout, Vector, flatten, flatten_frozen
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Named, Normalisation, Training, UpdateHeader, Workunit

SAMPLES = 100
BATCH_SIZE = 8
LABEL_UNIT = 1 / 1024
"""Labels are sample numbers in this unit: exact in float32, so a batch tells which samples it holds."""
WORKUNIT = Workunit(
    job="tiny", epoch=3, shard=17, attempt=0, base_version=142, seed=2**40 + 7,
    training=Training(
        optimizer=Named("adam"), learning_rate=0.01, batch_size=BATCH_SIZE, local_epochs=2,
        loss=Named("mean_squared_error"), metrics=(), normalisation=Normalisation((1 / 255,), (-0.5,)),
    ),
)  # fmt: skip
SIZE = 641
"""Weights of the model."""


def with_training(**changes: Any) -> Workunit:
    """The workunit, trained in another way."""
    return replace(WORKUNIT, training=replace(WORKUNIT.training, **changes))


def write_workunit(folder: Path, workunit: Workunit = WORKUNIT, dropout: float = 0.3) -> Path:
    """Write the four input files; the model has batch statistics and, but for PyTorch, chance in it."""
    import keras
    from keras import layers

    if keras.backend.backend() == "torch":
        dropout = 0.0  # PyTorch draws it from a state of its own, which no checkpoint can keep through Keras

    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,), name="input")
    x = layers.Dense(64, activation="relu", name="hidden")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Dropout(dropout, name="dropout")(x)
    model = keras.Model(inputs, layers.Dense(1, name="output")(x), name="tiny")
    (folder / "model.json").write_text(model.to_json())
    (folder / "workunit.json").write_text(workunit.to_json())
    header = ParamsHeader(workunit.job, workunit.base_version, Layout.of(model).fingerprint)
    write_weights(folder / "params.h5", flatten(model), header.to_json())
    write_shard(folder, *samples())
    return folder


def freeze_hidden(folder: Path, workunit: Workunit = WORKUNIT) -> Path:
    """Freeze the first layer of the model in a workunit's folder: 320 weights go into a file of their own."""
    import keras

    model = keras.models.model_from_json((folder / "model.json").read_text())
    model.get_layer("hidden").trainable = False
    (folder / "model.json").write_text(model.to_json())
    frozen = write_frozen(folder / "frozen.h5", flatten_frozen(model))
    (folder / "workunit.json").write_text(replace(workunit, frozen=frozen).to_json())
    header = ParamsHeader(workunit.job, workunit.base_version, Layout.of(model).fingerprint)
    write_weights(folder / "params.h5", flatten(model), header.to_json())
    return folder


def samples() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """x and y of the shard."""
    x = np.random.default_rng(5).integers(256, size=(SAMPLES, 4), dtype=np.uint8)
    return x, np.arange(SAMPLES, dtype=np.float32) * np.float32(LABEL_UNIT)


def write_shard(folder: Path, x: Any, y: Any) -> None:
    np.savez_compressed(folder / "shard.npz", x=x, y=y)


def read_update(folder: Path) -> tuple[Vector, UpdateHeader]:
    """The update that was written."""
    vector, header = read_weights(folder / "update.h5", SIZE)
    return vector, UpdateHeader.from_json(header)


class ScriptedSupervisor:
    """Answers by the number of the question, and keeps what it was told."""

    def __init__(self, answer: Callable[[int], Request] = lambda _: Request.GO) -> None:
        self.questions = 0
        self.checkpoints = 0
        self.told: list[tuple[float, float, int]] = []
        """Time, fraction and samples of each progress."""
        self._answer = answer

    def request(self) -> Request:
        self.questions += 1
        return self._answer(self.questions)

    def progress(self, fraction: float, samples: int) -> None:
        self.told.append((time.monotonic(), fraction, samples))

    def checkpoint_made(self) -> None:
        self.checkpoints += 1


class BatchAfterBatch(TrainerCache):
    """Makes trainers that train one batch in a call, so that the supervisor is asked before each."""

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        trainer = Trainer(model_json, training, frozen)
        trainer.longest_call_s = 0.0
        return trainer


class RecordingCache(TrainerCache):
    """Makes trainers that write the sample numbers of each batch into a file before they train it, one batch a line."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return _RecordingTrainer(model_json, training, frozen, self._log)


class _RecordingTrainer(Trainer):
    longest_call_s = 0.0  # the supervisor is asked before each batch

    def __init__(self, model_json: str, training: Training, frozen: Vector | None, log: Path) -> None:
        super().__init__(model_json, training, frozen)
        self._file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def steps(self, x: Any, y: npt.NDArray[Any], order: Order, batch_size: int, weights: Any = None) -> list[float]:
        for begin in range(0, len(order), batch_size):
            labels = y[order[begin : begin + batch_size]]
            os.write(self._file, (" ".join(str(round(value / LABEL_UNIT)) for value in labels) + "\n").encode())
        return super().steps(x, y, order, batch_size, weights)


def batches_seen(log: Path) -> list[list[int]]:
    """Sample numbers of each batch that was begun."""
    return [[int(number) for number in line.split()] for line in log.read_text().splitlines()]
