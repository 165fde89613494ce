"""Compute the moving mean and variance of batch normalisation from samples.

These statistics are used in prediction and not in training, so the server can compute them whenever it needs them.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from vcdl.client.resources import error_text
from vcdl.data.rows import Array
from vcdl.wire.inputs import as_keras_takes

_log = logging.getLogger(__name__)
_TRIED = 16
"""Samples of the pass that shows which layers to set: few, so that it takes no noticeable time."""
_BATCH_SIZE = 128
"""Samples in one forward pass. Without a graph all layers' outputs may be in memory at once, so it is small."""


class BatchStatistics:
    """Computes the statistics of a model's batch normalisation layers, including nested ones.

    Frozen layers, layers of the job's own code, and layers that the model always calls for inference keep their
    statistics.
    """

    def __init__(self, model: Any) -> None:
        """Find the layers of a model.

        Args:
            model: A built model. `take` changes its statistics and nothing else.
        """
        self._model = model
        self._pass = _pass_of(model)
        layers = {id(layer): layer for layer in model._flatten_layers(include_self=False)}
        self._layers = [_Layer(layer) for layer in layers.values() if _normalises_batches(layer)]
        self._are_tried = False

    def take(self, x: Array) -> None:
        """Set the statistics in the model to their mean over batches of `x`.

        The model is called for inference, so without dropout, but its batch normalisation uses each batch's statistics.
        The first call also finds out which layers to leave out.

        Args:
            x: Normalised samples, shape (n, …).
        """
        # Only a call with real samples shows which layers a model of the job's own code calls for inference
        # (docs/decisions/117).
        if self._layers and not self._are_tried:
            self._try(as_keras_takes(x[:_TRIED]))
        if not self._layers:
            return
        with self._measuring():
            for begin in range(0, len(x), _BATCH_SIZE):
                self._pass(as_keras_takes(x[begin : begin + _BATCH_SIZE]))
        for layer in self._layers:
            layer.set()

    def _try(self, x: Any) -> None:
        """Drop the layers that the model calls for inference even in training.

        All layers are dropped if the model's own code cannot be called.
        """
        import keras

        try:
            # The scope discards everything that the two calls change: states of random generators, and statistics.
            with keras.StatelessScope(), self._measuring():
                self._model(x, training=False)
                self._model(x, training=True)
        except Exception as error:  # of code that is not ours
            _log.warning(
                "batch normalisation keeps the mean of the clients' statistics: the model cannot be called here: %s",
                error_text(error),
            )
            self._layers = []
        self._layers = [layer for layer in self._layers if layer.is_training]
        self._are_tried = True

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        try:
            for layer in self._layers:
                layer.begin()
            yield
        finally:
            for layer in self._layers:
                layer.end()


def _normalises_batches(layer: Any) -> bool:
    from keras.layers import BatchNormalization

    # A class derived from BatchNormalization may use its statistics in training as well. Only Keras' own code is known
    # not to.
    return isinstance(layer, BatchNormalization) and type(layer).call is BatchNormalization.call and layer.trainable


def _pass_of(model: Any) -> Callable[[Any], object]:
    """Return a function that calls the model for inference on samples.

    With TensorFlow it is a graph, which takes 10 to 60 % of the time of a call without one.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return partial(model, training=False)
    import tensorflow as tf

    graph = tf.function(partial(model, training=False), autograph=False, reduce_retracing=True)
    return lambda x: graph(tf.nest.map_structure(tf.constant, x))


class _Layer:
    """A batch normalisation layer, whose statistics are summed over all calls between `begin` and `end`.

    Call `begin`, the model, `end` (also after an error), and then `set`.
    """

    def __init__(self, layer: Any) -> None:
        import keras

        self._layer = layer
        self._momentum = layer.momentum
        self.is_training = False
        """Whether the layer was called as in training."""
        self._before: list[Array] = []
        self._mean, self._variance, self._samples = [
            keras.Variable(np.zeros(shape, np.float32), trainable=False, autocast=False)
            for shape in (layer.moving_mean.shape, layer.moving_variance.shape, ())
        ]

    def begin(self) -> None:
        """Replace the layer's `call` by one that uses each batch's statistics and sums them up. Sums start at zero."""
        import keras

        for number in (self._mean, self._variance, self._samples):
            number.assign(np.zeros(number.shape, np.float32))
        layer = self._layer
        self._before = [np.array(keras.ops.convert_to_numpy(n)) for n in (layer.moving_mean, layer.moving_variance)]
        # Replace the statistics before the momentum becomes 0: for an infinite one, 0 · infinity would be NaN.
        layer.moving_mean.assign(self._mean)
        layer.moving_variance.assign(self._variance)
        # With a momentum of 0 each call leaves the statistics of its own batch in the layer, from which _call reads
        # them.
        layer.momentum = 0.0
        layer.call = self._call

    def _call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        import keras

        layer = self._layer
        self.is_training |= bool(kwargs.get("training"))
        # The call goes through the class, because the instance's own `call` is this function.
        outputs = type(layer).call(layer, inputs, *args, **{**kwargs, "training": True})
        # The last batch is smaller, so each batch counts by its samples.
        samples = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
        self._mean.assign_add(layer.moving_mean * samples)
        self._variance.assign_add(layer.moving_variance * samples)
        self._samples.assign_add(samples)
        return outputs

    def end(self) -> None:
        """Restore the layer's own `call` and momentum. The statistics keep the last batch's values until `set`."""
        self._layer.momentum = self._momentum
        vars(self._layer).pop("call", None)

    def set(self) -> None:
        """Store the mean and variance over all calls since `begin`, each batch weighted by its number of samples.

        If the layer was never called, for example in an unused branch, restore the statistics that it had before
        `begin`.
        """
        mean, variance = self._before
        # A layer in an unused branch is never called and gets back its earlier statistics.
        if float(self._samples):
            mean, variance = self._mean / self._samples, self._variance / self._samples
        self._layer.moving_mean.assign(mean)
        self._layer.moving_variance.assign(variance)
