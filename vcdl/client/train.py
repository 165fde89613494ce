"""Trains one workunit in a folder: reads its inputs, trains, writes `update.h5`.

In a local epoch the samples come in the order of a permutation drawn from (workunit's seed, local epoch), so a restarted client
sees each of them once, and a repeated workunit gives the same update on the same machine.
"""

import hashlib
import math
import time
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.client.checkpoint import FILE as CHECKPOINT_FILE
from vcdl.client.checkpoint import Checkpoint, Position
from vcdl.client.host import Host, Request
from vcdl.client.inputs import Shard, read_model_json, read_params, read_shard, read_workunit
from vcdl.client.steps import Steps
from vcdl.errors import VcdlError, WeightsFileError, WorkunitError
from vcdl.weights import Layout, assign, flatten, read_header, write_weights
from vcdl.workunit import OUTPUT_FILE, Training, UpdateHeader, Workunit

Array = npt.NDArray[Any]

CHECKPOINT_EVERY_S = 60.0
"""A killed client loses at most this much work; writing the largest models takes a second."""


class TrainingFailed(VcdlError):
    """The subtask cannot give a valid update."""


class Outcome(Enum):
    """How train_workunit ended without an error."""

    DONE = "done"
    """update.h5 is in the folder."""
    QUIT = "quit"
    """A checkpoint is in the folder."""


class Trainer:
    """A compiled model that is set back for each workunit: nothing is built or traced twice for the same job."""

    def __init__(self, model_json: str, training: Training) -> None:
        from vcdl.client.compile import compile_model
        from vcdl.client.model import load_model

        self.model = load_model(model_json)
        compile_model(self.model, training)
        self.model.optimizer.build(self.model.trainable_variables)
        self.layout = Layout.of(self.model)
        self.fingerprint = self.layout.fingerprint
        self.steps = Steps(self.model)
        self._variables = [*self.model.variables, *self.model.optimizer.variables]
        self.fresh = self.values()

    def values(self) -> tuple[Array, ...]:
        """All variables of model and optimizer: weights, random states, moments."""
        import keras

        return tuple(np.array(keras.ops.convert_to_numpy(variable.value)) for variable in self._variables)

    def restore(self, values: tuple[Array, ...]) -> None:
        """Set all variables."""
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)

    def begin(self, weights: npt.NDArray[np.float32], seed: int) -> None:
        """As newly built, with these weights and the random states of this seed."""
        import keras

        keras.utils.set_random_seed(seed)
        self.restore(self.fresh)
        for number, variable in enumerate(self._variables):
            if variable.path.endswith("seed_generator_state"):
                variable.assign(np.array([(seed + number) % 2**32, 0], np.uint32))
        assign(self.model, weights)
        self.steps.reset()


class TrainerCache:
    """The trainer of the last (model, training) and the shard of the last workunit, for a client that trains many."""

    def __init__(self) -> None:
        self._key = ""
        self._trainer: Trainer | None = None

    def trainer(self, model_json: str, training: Training) -> Trainer:
        """Raises ModelError, JobError."""
        key = hashlib.sha256(f"{model_json}\n{training}".encode()).hexdigest()
        if self._trainer is None or key != self._key:
            self._trainer = None  # the old model's memory goes first
            self._trainer, self._key = Trainer(model_json, training), key
        return self._trainer


def train_workunit(
    folder: Path, host: Host, cache: TrainerCache, checkpoint_every_s: float = CHECKPOINT_EVERY_S
) -> Outcome:
    """Train the workunit in `folder` to its end, or as far as the host lets.

    Raises WorkunitError, WeightsFileError, ModelError or JobError (the inputs do not fit), TrainingFailed (it diverged) and
    OSError (the disk); the folder then holds no update.h5 of this call.
    """
    workunit = read_workunit(folder)
    if _has_update(folder, workunit):  # killed between writing it and saying so
        return Outcome.DONE
    trainer = cache.trainer(read_model_json(folder), workunit.training)
    weights = read_params(folder, workunit, trainer.fingerprint, trainer.layout.size)
    shard = read_shard(folder, workunit.training.normalisation)
    trainer.begin(weights, workunit.seed)
    return _Session(folder, host, workunit, trainer, shard, checkpoint_every_s).run()


class _Session:
    """One call of train_workunit."""

    def __init__(
        self, folder: Path, host: Host, workunit: Workunit, trainer: Trainer, shard: Shard, checkpoint_every_s: float
    ) -> None:
        self._folder = folder
        self._host = host
        self._workunit = workunit
        self._trainer = trainer
        self._shard = shard
        self._checkpoint_every_s = checkpoint_every_s
        self._total = len(shard) * workunit.training.local_epochs
        self._earlier_s = 0.0
        self._begin_s = time.perf_counter()
        self._last_checkpoint_s = self._begin_s
        self._paused_s = 0.0

    def run(self) -> Outcome:
        training, steps, total = self._workunit.training, self._trainer.steps, self._total
        position = self._go_on()
        samples, sample = position.samples, position.sample
        for local_epoch in range(position.local_epoch, training.local_epochs):
            if sample == 0:
                steps.reset()
            order = np.random.default_rng([self._workunit.seed, local_epoch]).permutation(len(self._shard))
            while sample < len(order):
                batch = order[sample : sample + training.batch_size]
                steps.step(self._shard.x[batch], self._shard.y[batch])
                sample += len(batch)
                samples += len(batch)
                self._host.progress(samples / total, samples)
                request = self._request()
                if request is Request.FINISH and samples < total:
                    return self._finish(samples)
                if request is Request.QUIT and samples < total:
                    self._checkpoint(local_epoch, sample, samples)
                    return Outcome.QUIT
                if time.perf_counter() - self._last_checkpoint_s >= self._checkpoint_every_s:
                    self._checkpoint(local_epoch, sample, samples)
            sample = 0
        return self._finish(samples)

    def _request(self) -> Request:
        request = self._host.request()
        while request is Request.PAUSE:
            begin_s = time.perf_counter()
            self._host.wait()
            self._paused_s += time.perf_counter() - begin_s
            request = self._host.request()
        return request

    @property
    def _train_s(self) -> float:
        return self._earlier_s + time.perf_counter() - self._begin_s - self._paused_s

    def _go_on(self) -> Position:
        checkpoint = Checkpoint.read(self._folder, self._workunit.name, self._trainer.fresh)
        if checkpoint is None:
            return Position(self._workunit.name, 0, 0, 0, 0.0, 0.0)
        position = checkpoint.position
        self._trainer.restore(checkpoint.variables)
        self._trainer.steps.restore(position.loss, position.sample)
        self._earlier_s = position.train_s
        return position

    def _checkpoint(self, local_epoch: int, sample: int, samples: int) -> None:
        loss = self._trainer.steps.mean_loss()
        position = Position(self._workunit.name, local_epoch, sample, samples, loss, self._train_s)
        Checkpoint(position, self._trainer.values()).write(self._folder)
        self._last_checkpoint_s = time.perf_counter()
        self._host.checkpoint_made()

    def _finish(self, samples: int) -> Outcome:
        loss, vector = self._trainer.steps.mean_loss(), flatten(self._trainer.model)
        if not math.isfinite(loss) or not np.isfinite(vector).all():
            raise TrainingFailed(f"the training diverged (loss {loss}): lower training > learning_rate")
        header = UpdateHeader(
            job=self._workunit.job,
            workunit=self._workunit.name,
            base_version=self._workunit.base_version,
            layout=self._trainer.fingerprint,
            samples=samples,
            fraction=samples / self._total,
            train_s=self._train_s,
            loss=loss,
        )
        write_weights(self._folder / OUTPUT_FILE, vector, header.to_json())
        (self._folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        return Outcome.DONE


def _has_update(folder: Path, workunit: Workunit) -> bool:
    try:
        return UpdateHeader.from_json(read_header(folder / OUTPUT_FILE)).workunit == workunit.name
    except (WeightsFileError, WorkunitError):
        return False
