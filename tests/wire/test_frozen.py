"""The file of the weights that no training changes, and what of a model is in it."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.errors import WeightsFileError
from vcdl.wire.frozen import read_frozen, write_frozen
from vcdl.wire.layout import Layout, assign, assign_frozen, flatten, flatten_frozen
from vcdl.wire.workunit import Frozen

pytestmark = pytest.mark.keras

VECTOR = np.arange(7, dtype=np.float32)


def test_a_file_is_read_back_by_what_names_it(tmp_path: Path) -> None:
    frozen = write_frozen(tmp_path / "frozen.h5", VECTOR)
    assert frozen.size == 7
    np.testing.assert_array_equal(read_frozen(tmp_path / "frozen.h5", frozen), VECTOR)


def test_a_missing_a_damaged_and_another_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "frozen.h5"
    with pytest.raises(WeightsFileError, match=r"frozen\.h5 is missing: fetch"):
        read_frozen(path, Frozen(7, "0" * 64))
    frozen = write_frozen(path, VECTOR)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsFileError, match=r"frozen\.h5 is damaged or of another job"):
        read_frozen(path, frozen)
    frozen = write_frozen(path, VECTOR)
    with pytest.raises(WeightsFileError, match="8 float32 numbers"):
        read_frozen(path, Frozen(8, frozen.sha256))


def a_model() -> keras.Model:
    inner = keras.Sequential(
        [keras.Input((5,)), layers.Dense(4, name="deep"), layers.BatchNormalization(name="deep_norm")], name="inner"
    )
    inputs = keras.Input((5,))
    x = inner(layers.BatchNormalization(name="norm")(layers.Normalization(name="standard")(inputs)))
    x = layers.TimeDistributed(layers.Dense(3, name="within"), name="wrapped")(layers.Reshape((2, 2))(x))
    return keras.Model(inputs, layers.Dense(2, name="head")(layers.Flatten()(x)))


def paths(layout: Layout) -> list[str]:
    return [variable.path.rpartition("/")[0].rpartition("/")[2] for variable in layout.variables]


def test_without_a_frozen_layer_all_that_training_changes_travels() -> None:
    model = a_model()
    assert paths(Layout.of_frozen(model)) == ["standard"] * 3
    assert set(paths(Layout.of(model))) == {"norm", "deep", "deep_norm", "within", "wrapped", "head"} - {"wrapped"}
    sizes = Layout.of(model).size + Layout.of_frozen(model).size
    assert sizes == sum(int(np.prod(weight.shape)) for weight in model.weights)


def test_statistics_travel_with_the_layers_that_are_trained_and_no_others() -> None:
    model = a_model()
    model.get_layer("norm").trainable = False
    model.get_layer("inner").layers[0].trainable = False
    assert paths(Layout.of_frozen(model)) == ["standard"] * 3 + ["norm"] * 4 + ["deep"] * 2
    assert [path for path in paths(Layout.of(model)) if path == "deep_norm"] == ["deep_norm"] * 4
    model.get_layer("inner").trainable = False
    assert paths(Layout.of(model)) == ["within"] * 2 + ["head"] * 2


def test_what_lora_adds_to_is_frozen_and_the_bias_is_not() -> None:
    model = keras.Sequential([keras.Input((20,)), layers.Dense(10, name="big"), layers.Dense(2, name="head")])
    model.get_layer("big").enable_lora(2)
    assert [v.path.rpartition("/")[2] for v in Layout.of_frozen(model).variables] == ["kernel"]
    assert Layout.of(model).size == 10 + 2 * 20 + 2 * 10 + 22


def test_both_parts_of_the_weights_are_set_again() -> None:
    model, other = a_model(), a_model()
    for each in (model, other):
        each.get_layer("inner").trainable = False
    assign(other, flatten(model))
    assign_frozen(other, flatten_frozen(model))
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(WeightsFileError, match="3 frozen weights for a model of"):
        assign_frozen(model, np.zeros(3, np.float32))
