"""Train many batches in one call, with results equal to `train_on_batch` to the last bit, but without its overhead."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy.typing as npt

from vcdl.client import own_code
from vcdl.client.batches import Order
from vcdl.errors import JobError
from vcdl.wire.inputs import as_keras_takes

Array = npt.NDArray[Any]
Data = tuple[Array, ...]
"""A shard's inputs and labels, and the samples' weights if they are not all equal; each of shape (n, …)."""
_Batch = tuple[Array | dict[str, Array], ...]


class TrainLoop(Protocol):
    """Trains a compiled model on many batches in one call."""

    def steps(self, data: Data, order: Order, batch_size: int) -> list[float]:
        """Train the samples of `order` in batches, and return each batch's mean loss before its step."""


def loop_of(model: Any) -> TrainLoop:
    """Return the fastest training loop for a compiled model on this process' backend."""
    import keras

    if own_code.is_loaded():  # the job's own steps, layers and losses may do anything that Keras' own loop allows
        return BatchLoop(model)
    backend = keras.backend.backend()
    if backend == "tensorflow" and not model.jit_compile:
        return _GraphLoop(model)
    if backend == "jax":
        return _StateLoop(model)
    return BatchLoop(model)


class BatchLoop:
    """Trains batch after batch by Keras' public method: for PyTorch, and TensorFlow with XLA."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def steps(self, data: Data, order: Order, batch_size: int) -> list[float]:
        return [self._step(_select_batch(data, batch)) for batch in _cut(order, batch_size)]

    def _step(self, data: _Batch) -> float:
        self._model.reset_metrics()  # Keras < 3.11 returns the mean since the last reset
        logs = self._model.train_on_batch(*data, return_dict=True)
        if "loss" not in logs:
            raise JobError("the model's train_step returns no 'loss': return {'loss': …}, as Keras' own step does")
        return float(logs["loss"])


class _GraphLoop:
    """Runs the loop over the batches inside a TensorFlow graph, so that a call costs nothing per batch.

    One trace serves batches of any size.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._held: tuple[Data, Any] = (), ()
        """The newest shard, and its tensors, which are reused while the same shard is trained."""
        self._traced: tuple[Any, Any] = (), None
        """The types of a shard's tensors, and the compiled loop for shards of these types."""

    def steps(self, data: Data, order: Order, batch_size: int) -> list[float]:
        import tensorflow as tf

        held, _ = self._held
        if len(held) != len(data) or any(old is not new for old, new in zip(held, data, strict=True)):
            self._held = data, tf.nest.map_structure(tf.constant, tuple(map(as_keras_takes, data)))
            kinds = tf.nest.map_structure(
                lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), self._held[1]
            )
            # Shards of a job differ in their number of samples, which the trace leaves open, so one trace serves all of
            # them.
            if self._traced[0] != kinds:
                self._traced = kinds, _trace_loop(self._model, kinds)
        losses = self._traced[1](self._held[1], tf.constant(order, tf.int32), tf.constant(batch_size))
        return [float(loss) for loss in losses.numpy()]


def _trace_loop(model: Any, kinds: Any) -> Any:
    """Trace a function (data, order, batch size) → the mean loss of each batch before its step.

    Args:
        model: The compiled model.
        kinds: Types of the data; each is traced once.
    """
    import tensorflow as tf

    signature = (kinds, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32))

    # Do not use AutoGraph, because it would write the loop's translation into the system's folder for temporary files.
    @tf.function(autograph=False, input_signature=signature)  # type: ignore[untyped-decorator]
    def loop(data: Any, order: Any, batch_size: Any) -> Any:
        count = -(-tf.shape(order)[0] // batch_size)

        def step(number: Any, losses: Any) -> tuple[Any, Any]:
            batch = order[number * batch_size : (number + 1) * batch_size]
            # Reset the metrics as `train_on_batch` does: otherwise the loss in the logs is the mean since the loop
            # started.
            for metric in model.metrics:
                metric.reset_state()
            # Gather inside the graph: then one trace serves batches of any size, including the short last one.
            logs = model.train_step(tf.nest.map_structure(lambda part: tf.gather(part, batch), data))
            return number + 1, losses.write(number, tf.cast(logs["loss"], tf.float32))

        _, losses = tf.while_loop(lambda number, _: number < count, step, (0, tf.TensorArray(tf.float32, count)))
        return losses.stack()

    return loop


class _StateLoop:
    """Passes JAX's state from one compiled step to the next, and sets it in the model only after the last one."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._step = _compile_step(model)

    def steps(self, data: Data, order: Order, batch_size: int) -> list[float]:
        model = self._model
        model.reset_metrics()
        # Pass the metrics' initial values to each step, so that the loss is that of its batch only.
        fresh = _values(model.metrics_variables)
        trained, others = _values(model.trainable_variables), _values(model.non_trainable_variables)
        optimizer, losses = _values(model.optimizer.variables), []
        for batch in _cut(order, batch_size):
            loss, trained, optimizer, others = self._step(trained, optimizer, others, fresh, _select_batch(data, batch))
            losses.append(loss)
        _assign(model.trainable_variables, trained)
        _assign(model.optimizer.variables, optimizer)
        _assign(model.non_trainable_variables, others)
        return [float(loss) for loss in losses]


def _compile_step(model: Any) -> Any:
    """Compile a function (trained, optimizer's, others, metrics, data) → the loss before the step and the new state.

    The buffers of the first two arguments are reused for the new state, so they must not be used afterwards.
    """
    import jax

    def step(trained: Any, optimizer: Any, others: Any, fresh: Any, data: Any) -> Any:
        logs, (trained, others, optimizer, _) = model.train_step((trained, others, optimizer, fresh), data)
        return logs["loss"], trained, optimizer, others

    # The old weights and optimizer variables are donated to the step, so that it can update them in place.
    return jax.jit(step, donate_argnums=(0, 1))


def _values(variables: Iterable[Any]) -> list[Any]:
    return [variable.value for variable in variables]


def _assign(variables: Iterable[Any], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _select_batch(data: Data, batch: Order) -> _Batch:
    return tuple(as_keras_takes(part[batch]) for part in data)


def _cut(order: Order, batch_size: int) -> list[Order]:
    return [order[begin : begin + batch_size] for begin in range(0, len(order), batch_size)]
