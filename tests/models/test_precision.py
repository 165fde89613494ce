"""Mixed precision: which layers compute with short numbers, and that all weights stay float32."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.model import load_model
from vcdl.client.trainer import Trainer
from vcdl.job.model import ModelSettings
from vcdl.models.build import BuiltModel, build_model
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

TRAINING = Training(Named("adam"), 0.01, 8, 1, Named("sparse_categorical_crossentropy"))


def built(folder: Path, precision: str) -> BuiltModel:
    keras.utils.set_random_seed(3)
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8, name="deep"), layers.BatchNormalization()], name="in")
    inputs = keras.Input((8,), name="input")
    x = layers.Dense(6, name="own", dtype="float32")(inner(inputs))
    keras.Model(inputs, layers.Dense(3, activation="softmax", name="head")(x)).save(folder / "m.keras")
    return build_model(ModelSettings(keras=folder / "m.keras"), (8,), 3, precision=precision)


def test_all_layers_but_the_last_compute_with_short_numbers(tmp_path: Path) -> None:
    model = built(tmp_path, "mixed_bfloat16")
    loaded = load_model(model.json)
    assert loaded.get_layer("in").layers[0].compute_dtype == "bfloat16"
    assert loaded.get_layer("own").compute_dtype == "bfloat16"
    assert loaded.get_layer("head").compute_dtype == "float32"
    assert {weight.dtype for weight in loaded.weights} == {"float32"}
    assert loaded.outputs[0].dtype == loaded.inputs[0].dtype == "float32"
    np.testing.assert_array_equal(model.weights, built(tmp_path, "float32").weights)


def test_what_an_operation_at_the_end_takes_stays_long(tmp_path: Path) -> None:
    inputs = keras.Input((8,))
    x = layers.Dense(6, name="deep")(inputs)
    sums = layers.Dense(3, name="one")(x) + layers.Dense(3, name="other")(x)
    keras.Model(inputs, keras.ops.softmax(sums)).save(tmp_path / "m.keras")
    model = load_model(build_model(ModelSettings(keras=tmp_path / "m.keras"), (8,), 3, precision="mixed_bfloat16").json)
    assert [layer.compute_dtype for layer in model.layers[1:]] == ["bfloat16", "float32", "float32"]
    assert model.outputs[0].dtype == "float32"


def test_without_it_the_model_stays_as_it_is(tmp_path: Path) -> None:
    assert "bfloat16" not in built(tmp_path, "float32").json


def test_a_client_trains_with_it_and_gives_float32(tmp_path: Path) -> None:
    model = built(tmp_path, "mixed_bfloat16")
    trainer = Trainer(model.json, TRAINING, model.frozen)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(64, 8)).astype(np.float32), rng.integers(3, size=64)
    trainer.begin(trainer.with_moments(model.weights), 1, 0.01, 30)
    losses = [loss for _ in range(30) for loss in trainer.steps(x, y, np.arange(64), 64)]
    assert losses[-1] < 0.9 * losses[0]
    assert trainer.finish().dtype == np.float32
