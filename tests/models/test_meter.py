"""Measuring one model again and again gives what Keras' own evaluation gives, to the last bit."""

from typing import Any

import numpy as np
import pytest

from vcdl.errors import WeightsFileError
from vcdl.models.meter import KerasMeter, meter_of
from vcdl.wire.inputs import as_keras_takes, pack_inputs
from vcdl.wire.layout import assign, flatten

pytestmark = pytest.mark.keras

COUNT = 150
BATCH_SIZE = 64


def classifier() -> Any:
    """Two inputs, batch normalisation, a frozen layer and metrics that keep counts, means and thresholds."""
    import keras
    from keras import layers

    wide, narrow = keras.Input((6,), name="wide"), keras.Input((2, 2), name="narrow")
    frozen = layers.Dense(5, name="frozen", trainable=False)
    x = layers.Concatenate()([layers.BatchNormalization()(wide), layers.Flatten()(narrow)])
    model = keras.Model([wide, narrow], layers.Dense(3)(frozen(x)))
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        weighted_metrics=[
            keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top"),
            keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy"),
        ],
        jit_compile=False,
    )
    return model


def binary() -> Any:
    import keras

    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, "sigmoid")])
    metrics = [
        keras.metrics.AUC(),
        keras.metrics.F1Score("micro", 0.5),
        keras.metrics.Recall(),
        keras.metrics.R2Score(),
    ]
    model.compile(loss="binary_crossentropy", metrics=metrics, jit_compile=False)
    return model


def samples(random: np.random.Generator) -> tuple[Any, Any, Any]:
    x = pack_inputs(
        {
            "wide": random.normal(size=(COUNT, 6)).astype(np.float32),
            "narrow": random.normal(size=(COUNT, 2, 2)).astype(np.float32),
        }
    )
    return x, random.integers(0, 3, COUNT), random.random(COUNT).astype(np.float32)


def evaluated(model: Any, x: Any, y: Any, weights: Any) -> dict[str, float]:
    measured = model.evaluate(
        as_keras_takes(x), y, batch_size=BATCH_SIZE, sample_weight=weights, verbose=0, return_dict=True
    )
    return {name: float(np.squeeze(value)) for name, value in measured.items()}


def measured(meter: Any, *data: Any) -> dict[str, float]:
    return {name: float(np.squeeze(value)) for name, value in meter.measure(*data, BATCH_SIZE).items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [meter_of, KerasMeter])
def test_it_measures_what_keras_evaluates_time_after_time(kind: Any) -> None:
    random = np.random.default_rng(3)
    x, y, weights = samples(random)
    model, reference = classifier(), classifier()
    meter = kind(model)
    frozen = [weight.numpy() for weight in model.get_layer("frozen").weights]
    reference.set_weights(model.get_weights())
    for part in (slice(0, COUNT), slice(0, 10), slice(5, 140), slice(0, BATCH_SIZE)):
        vector = random.normal(size=flatten(model).size).astype(np.float32) ** 2
        meter.set(vector)
        assign(reference, vector)
        for some in (weights[part], None):
            assert measured(meter, x[part], y[part], some) == evaluated(reference, x[part], y[part], some)
    np.testing.assert_array_equal(flatten(model), vector)
    np.testing.assert_equal([weight.numpy() for weight in model.get_layer("frozen").weights], frozen)


def test_metrics_that_keep_more_than_a_mean_begin_anew() -> None:
    random = np.random.default_rng(4)
    x, y = random.normal(size=(COUNT, 6)).astype(np.float32), random.integers(0, 2, (COUNT, 1)).astype(np.float32)
    model = binary()
    meter = meter_of(model)
    first = measured(meter, x, y, None)
    assert measured(meter, x[:40], y[:40], None) != first
    assert measured(meter, x, y, None) == first == evaluated(model, x, y, None)


def test_weights_of_another_model_are_refused() -> None:
    meter = meter_of(binary())
    with pytest.raises(WeightsFileError, match="8 weights for a model of 7"):
        meter.set(np.zeros(8, np.float32))
