"""A compiled Keras model that trains one workunit after another, so that nothing is built or traced twice."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.client.batches import Order
from vcdl.client.compile import compile_model, loss_unit
from vcdl.client.loops import loop_of
from vcdl.client.model import input_shapes, load_model, target_scale
from vcdl.client.moments import SharedMoments
from vcdl.wire.layout import Layout, Vector, assign, flatten
from vcdl.wire.workunit import Frozen, Training


@dataclass(frozen=True)
class TrainerState:
    """All state that training changes. A trainer that restores it continues as if it had never stopped."""

    weights: Vector
    optimizer: tuple[npt.NDArray[Any], ...]
    """The optimizer's variables in its order, with step count and learning rate."""
    seeds: tuple[npt.NDArray[Any], ...]
    """Seed and counter, shape (2,), of each layer that draws random numbers."""

    def fits(self, other: "TrainerState") -> bool:
        """Return whether both states belong to one model and one optimizer."""
        return self._shapes() == other._shapes()

    def _shapes(self) -> list[list[tuple[int, ...]]]:
        return [[a.shape for a in part] for part in ((self.weights,), self.optimizer, self.seeds)]


class Trainer:
    """Trains one compiled model, for one workunit after another.

    Model, optimizer and loss stay the same; `begin` sets the weights, seed and learning rate of a workunit.
    """

    longest_call_s = 0.1
    """Seconds that a call of `steps` should take, since the supervisor's requests are read between two calls."""

    def __init__(self, model_json: str, training: Training, frozen: Vector | None = None) -> None:
        """Load and compile a model.

        Args:
            model_json: The model, as Keras JSON.
            training: The job's settings.
            frozen: The weights that no training changes; None for fresh ones.

        Raises:
            ModelError, JobError, WeightsFileError: Model, settings or weights cannot be used.
        """
        self.model = load_model(model_json, frozen, draws_weights=frozen is None)  # a workunit's files have all
        # Leave out the metrics, because the server measures its own. Keras computes the loss anyway.
        self._loss_unit = loss_unit(training.loss, target_scale(self.model))
        compile_model(self.model, training.without_metrics(), loss_weight=1 / self._loss_unit)
        self._optimizer = self.model.optimizer
        self._optimizer.build(self.model.trainable_variables)
        self._moments = SharedMoments(self._optimizer, training)
        others = {id(variable) for variable in (*self.model.weights, *self.model.metrics_variables)}
        # The remaining variables are the states of random layers, which a checkpoint must contain in addition to the
        # weights.
        self._seeds = [variable for variable in self.model.variables if id(variable) not in others]
        # Keep these values to reset the optimizer for each workunit: a new optimizer would be traced and compiled
        # again.
        self._fresh_optimizer = _values(self._optimizer.variables)
        self.layout = Layout.of(self.model).with_moments(self._moments.shapes)
        self._loop = loop_of(self.model)
        self._rate = 0.0
        """The workunit's learning rate, as a factor of the job's."""
        self._batch_s = math.inf
        """Seconds of a batch in the last call."""

    @property
    def backend(self) -> str:
        """The name of Keras' backend."""
        import keras

        return str(keras.backend.backend())

    @property
    def input_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Shape of one sample by the name of the input; a single input has no name."""
        return input_shapes(self.model)

    def with_moments(self, weights: Vector) -> Vector:
        """Return the weights, followed by those moments of a fresh optimizer that are sent. The optimizer is reset."""
        _assign(self._optimizer.variables, self._fresh_optimizer)
        return np.concatenate([weights, self._moments.values()])

    def begin(self, weights: Vector, seed: int, learning_rate: float, steps: int) -> None:
        """Start a workunit: forget the previous one, and set its weights with moments, seed and rate.

        Args:
            weights: The weights with moments, shape (n,).
            seed: The seed of random layers.
            learning_rate: The job's peak rate times the workunit's factor.
            steps: Batches of the workunit.

        Raises:
            WeightsFileError: The weights do not fit the model.
        """
        import keras

        if keras.backend.backend() == "torch":
            # Its dropout draws from PyTorch's own state. The other backends draw only from the layers' seeds, which are
            # set below. On TensorFlow this call would discard prepared kernels: 140 ms more for a subtask of 1000
            # images.
            keras.utils.set_random_seed(seed % 2**32)
        size = self.layout.model.size
        assign(self.model, weights[:size])
        _assign(self._optimizer.variables, self._fresh_optimizer)
        self._moments.assign(weights[size:])
        self._rate = learning_rate
        self.set_learning_rate_for(0, steps)
        draws = np.random.default_rng(seed).integers(2**31, size=len(self._seeds))
        _assign(self._seeds, [np.array([draw, 0]) for draw in draws])

    def set_learning_rate_for(self, done: int, batches: int) -> None:
        """Set the rate for the next `batches` batches of the workunit, after the first `done`."""
        self._moments.set_rate(self._rate, batches, done)

    @property
    def has_trained(self) -> bool:
        """Whether a batch has been trained; the first one takes longer, because the model is compiled."""
        return self._batch_s < math.inf

    @property
    def at_once(self) -> int:
        """Number of batches that `steps` should get in one call to take about `longest_call_s`; 1 at first."""
        return max(1, int(self.longest_call_s / self._batch_s))

    def steps(
        self,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        order: Order,
        batch_size: int,
        weights: npt.NDArray[np.float32] | None = None,
    ) -> list[float]:
        """Train samples in order, and return each batch's loss before its step.

        Args:
            x: Samples.
            y: Labels.
            order: Indices of the samples to train.
            batch_size: Samples per batch.
            weights: The weight of each sample; None if all are equal.
        """
        begun_s = time.perf_counter()
        losses = self._loop.steps((x, y) if weights is None else (x, y, weights), order, batch_size)
        self._batch_s = (time.perf_counter() - begun_s) / len(losses)
        return losses if self._loss_unit == 1 else [loss * self._loss_unit for loss in losses]

    def finish(self) -> Vector:
        """Apply the optimizer's final averaging to the model; return the trained weights and moments, shape (n,)."""
        self._optimizer.finalize_variable_values(self.model.trainable_variables)
        return np.concatenate([flatten(self.model), self._moments.values()])

    def state(self) -> TrainerState:
        """Return a copy of the state that training changes."""
        return TrainerState(flatten(self.model), _values(self._optimizer.variables), _values(self._seeds))

    def restore(self, state: TrainerState) -> None:
        """Continue from a state that `fits` this trainer's."""
        assign(self.model, state.weights)
        _assign(self._optimizer.variables, state.optimizer)
        _assign(self._seeds, state.seeds)


_NOT_COMPILED_IN = frozenset({"learning_rate", "batch_size", "local_epochs", "metrics", "normalisation", "target_s"})
"""Settings of a training that each subtask sets on an existing trainer. A new setting that is missing here only creates
another trainer needlessly. If this list had the other settings instead, a trainer would use the last job's value."""


class TrainerCache:
    """Keeps the newest trainer, because a worker trains many workunits of one job.

    It keeps only one, as a model may be large.
    """

    def __init__(self) -> None:
        self._key = ""
        self._trainer: Trainer | None = None

    def get(
        self,
        model_json: str,
        training: Training,
        frozen: Frozen | None = None,
        read_frozen: Callable[[], Vector] = lambda: np.zeros(0, np.float32),
    ) -> Trainer:
        """Return the trainer for a model, its settings and frozen weights; the last one if these are unchanged.

        Otherwise the last one is dropped, and a new one is created.

        Args:
            model_json: The model, as Keras JSON.
            training: The job's settings.
            frozen: Facts about the frozen weights, or None if there are none.
            read_frozen: Reads the frozen weights; called only for a new trainer.

        Raises:
            VcdlError: The trainer cannot be created, or the frozen weights cannot be read.
        """
        settings = {name: value for name, value in asdict(training).items() if name not in _NOT_COMPILED_IN}
        settings["frozen"] = None if frozen is None else frozen.sha256
        key = hashlib.sha256(json.dumps([model_json, settings], sort_keys=True).encode()).hexdigest()
        if self._trainer is None or key != self._key:
            # Drop the old model first: two large models may not fit into memory at the same time.
            self.clear()
            self._trainer, self._key = self.make(model_json, training, read_frozen()), key
        return self._trainer

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        """Create a trainer."""
        return Trainer(model_json, training, frozen)

    def clear(self) -> None:
        """Drop the trainer, and free the memory that Keras uses for it."""
        if self._trainer is not None:
            import keras

            self._trainer = None
            keras.utils.clear_session()


def _values(variables: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
    import keras

    # A copy: some backends return views of their own memory.
    return tuple(np.array(keras.ops.convert_to_numpy(variable)) for variable in variables)


def _assign(variables: Sequence[Any], values: Sequence[npt.NDArray[Any]]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
