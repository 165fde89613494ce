"""Measure many versions of weights with one compiled model.

Results equal those of `evaluate` to the last bit, but come faster.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from vcdl.client import own_code
from vcdl.data.rows import Array
from vcdl.data.samples import Sliced
from vcdl.wire.inputs import as_keras_takes
from vcdl.wire.layout import Vector, assign, trained_weights

_Batch = tuple[Array | dict[str, Array], ...]


class Meter(Protocol):
    """Measures the loss and metrics of one compiled model for many versions of its weights.

    Call `set` with a version's weights, then `measure`, which uses them until the next `set`.
    """

    def set(self, vector: Vector) -> None:
        """Set the weights that training changes, shape (n,). Raises WeightsFileError when the length differs."""

    def measure(self, x: Sliced, y: Sliced, weights: Array | None, batch_size: int) -> dict[str, Any]:
        """Return the loss and the metrics on samples, by Keras' names.

        Args:
            x: Samples.
            y: Labels.
            weights: Keras' `sample_weight`.
            batch_size: Samples at a time.
        """


def meter_of(model: Any) -> Meter:
    """Return the fastest meter that works for a compiled model on this process' backend."""
    import keras

    # A model of the job's own code may have a test_step that a graph cannot trace, or whose Python parts would run only
    # once.
    in_graph = keras.backend.backend() == "tensorflow" and not model.jit_compile and not own_code.is_loaded()
    return _GraphMeter(model) if in_graph else KerasMeter(model)


class KerasMeter:
    """Measures with Keras' public methods: for JAX, PyTorch, TensorFlow with XLA, and models of the job's own code."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def set(self, vector: Vector) -> None:
        assign(self._model, vector)

    def measure(self, x: Sliced, y: Sliced, weights: Array | None, batch_size: int) -> dict[str, Any]:
        measured: dict[str, Any]
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):  # larger than memory
            batches = _cut(x, y, weights, batch_size)
            measured = self._model.evaluate(batches, steps=-(-len(x) // batch_size), verbose=0, return_dict=True)
            return measured
        if len(x) <= batch_size:
            self._model.reset_metrics()  # Keras < 3.11 continues those of the last call
            measured = self._model.test_on_batch(as_keras_takes(x), as_keras_takes(y), weights, return_dict=True)
        else:
            measured = self._model.evaluate(
                as_keras_takes(x),
                as_keras_takes(y),
                batch_size=batch_size,
                sample_weight=weights,
                verbose=0,
                return_dict=True,
            )
        return measured


class _GraphMeter:
    """Measures with graphs of TensorFlow: one call sets all weights, and one measures a batch of any size."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._size = sum(math.prod(weight.shape) for weight in trained_weights(model))
        self._set, self._reset, self._step = _trace_set(model), _trace_reset(model), _trace_step(model)
        self._is_built = False

    def set(self, vector: Vector) -> None:
        import tensorflow as tf

        if vector.size != self._size:
            assign(self._model, vector)  # raises WeightsFileError with the sizes
        self._set(tf.constant(vector))

    def measure(self, x: Sliced, y: Sliced, weights: Array | None, batch_size: int) -> dict[str, Any]:
        import tensorflow as tf

        if not self._is_built:
            first = next(_cut(x, y, weights, batch_size))
            self._model.test_on_batch(*first)  # makes the metrics' variables, which are reset below
            self._is_built = True
        self._reset()
        for batch in _cut(x, y, weights, batch_size):
            self._step(tf.nest.map_structure(tf.constant, batch))
        # Outside a graph, as in `evaluate`: inside, the last bit of an F1 score may differ.
        return {name: np.asarray(value) for name, value in self._model.get_metrics_result().items()}


def _trace_set(model: Any) -> Any:
    """Return a compiled function that sets the model's trained weights from a vector of shape (n,)."""
    import tensorflow as tf

    weights = trained_weights(model)
    sizes = [math.prod(weight.shape) for weight in weights]

    # AutoGraph is off, because it writes the translated function into the system's folder for temporary files.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def set_weights(vector: Any) -> None:
        for weight, part in zip(weights, tf.split(vector, sizes), strict=True):
            weight.assign(tf.cast(tf.reshape(part, weight.shape), weight.dtype))

    return set_weights


def _trace_reset(model: Any) -> Any:
    """Return a compiled function that resets the model's loss and metrics."""
    import tensorflow as tf

    return tf.function(model.reset_metrics, autograph=False)


def _trace_step(model: Any) -> Any:
    """Return a compiled function that updates the model's loss and metrics with a batch (x, y) or (x, y, weights)."""
    import tensorflow as tf

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(batch: Any) -> None:
        model.test_step(batch)

    return step


def _cut(x: Sliced, y: Sliced, weights: Array | None, batch_size: int) -> Iterator[_Batch]:
    for begin in range(0, len(x), batch_size):
        some = slice(begin, begin + batch_size)
        batch = as_keras_takes(x[some]), as_keras_takes(y[some])
        yield batch if weights is None else (*batch, weights[some])
