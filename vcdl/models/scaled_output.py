"""Add a last layer to a regression model that scales its outputs to the targets.

The layer multiplies by the targets' standard deviation and adds their mean. In training, the client divides the loss
accordingly.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from vcdl.client.model import TARGET_SCALE, load_model, output_tensors
from vcdl.client.parts import model_to_json
from vcdl.data.dataset import Dataset
from vcdl.data.rows import Array, first_of
from vcdl.models.build import BuiltModel
from vcdl.wire.inputs import as_keras_takes
from vcdl.wire.layout import assign
from vcdl.wire.normalise import normalise
from vcdl.wire.workunit import Normalisation

_USUAL = 3.0
"""Targets with a standard deviation from 1/3 to 3 and a mean from -3 to 3 are learned without a scaling layer."""
_TRIED = 256
"""Samples whose predictions show whether a model was trained before: few, so that it takes no noticeable time."""


def with_scaled_output(model: BuiltModel, dataset: Dataset, normalisation: Normalisation) -> BuiltModel:
    """Return the model with a layer at its end that scales its outputs to the targets, or unchanged.

    It is unchanged if the targets have a usual scale, if it has several outputs or does not end in a Dense layer
    without activation, and if it was trained on these targets before.

    Args:
        model: A model for a regression.
        dataset: The job's data.
        normalisation: The normalisation of the samples, which the model expects.
    """
    y = np.asarray(dataset.y_train, np.float64).reshape(len(dataset.y_train), -1)
    mean, deviation = y.mean(axis=0), y.std(axis=0)
    # The client divides the loss by the deviation, so that of a constant target, 0, must be replaced.
    deviation[deviation == 0] = 1.0
    if (deviation > 1 / _USUAL).all() and (deviation < _USUAL).all() and (np.abs(mean) < _USUAL).all():
        return model
    import keras

    plain = load_model(model.json, model.frozen)
    # Scale only the output of a Dense layer without activation: an activation gives the outputs a range that has a
    # meaning.
    if len(plain.outputs) != 1 or plain.outputs[0].shape[1:] != (y.shape[1],) or not _ends_linear(plain):
        return model
    assign(plain, model.weights)
    # A model that predicts better than the mean was trained on these targets already, and a layer behind it would spoil
    # its predictions (docs/decisions/070).
    if _predicts(plain, normalise(first_of(dataset.x_train, _TRIED), normalisation), y[:_TRIED], mean):
        return model
    layer = keras.layers.Rescaling(deviation.tolist(), mean.tolist(), name=TARGET_SCALE)
    inputs = plain.inputs[0] if isinstance(plain, keras.Sequential) else plain.input
    scaled = keras.Model(inputs, layer(plain.outputs[0]), name=plain.name)
    return replace(model, json=model_to_json(scaled))


def _ends_linear(model: Any) -> bool:
    import keras

    (tensor,) = output_tensors(model).values()
    layer = tensor._keras_history.operation
    return isinstance(layer, keras.layers.Dense) and layer.activation is keras.activations.linear


def _predicts(model: Any, x: Array, y: Array, mean: Array) -> bool:
    given = np.asarray(model.predict_on_batch(as_keras_takes(x)), np.float64)
    return bool(np.square(given - y).sum() < np.square(y - mean).sum())
