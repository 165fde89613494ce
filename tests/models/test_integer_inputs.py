"""Whole numbers that a model takes as such stay whole: found in its JSON, checked against the data."""

import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.errors import DataError
from vcdl.models.integer_inputs import IntegerInput, integer_inputs

pytestmark = pytest.mark.keras


def plain() -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Embedding(10, 3), layers.Flatten(), layers.Dense(2)])


def behind_shapes() -> Any:
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Embedding(10, 3)(layers.Reshape((2, 3))(inputs)))


def behind_operations() -> Any:
    inputs = keras.Input((6, 2))
    tokens = keras.ops.cast(keras.ops.squeeze(inputs[:, :, :1], -1), "int32")
    return keras.Model(inputs, layers.Embedding(10, 3, mask_zero=True)(tokens))


def nested() -> Any:
    inside = keras.Sequential([keras.Input((6,)), layers.Embedding(10, 3)])
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Flatten()(inside(inputs)))


def beside_a_dense_layer() -> Any:
    inputs = keras.Input((6,))
    looked_up = layers.Flatten()(layers.Embedding(10, 3)(inputs))
    return keras.Model(inputs, layers.Concatenate()([layers.Dense(2)(inputs), looked_up]))


def twice() -> Any:
    inputs, words = keras.Input((6,)), layers.Embedding(10, 3)
    return keras.Model(inputs, layers.Add()([words(inputs), words(layers.Reshape((6,))(inputs))]))


def in_each_step() -> Any:
    return keras.Sequential([keras.Input((2, 3)), layers.TimeDistributed(layers.Embedding(10, 3))])


def found(model: Any) -> IntegerInput | None:
    return integer_inputs(json.loads(model.to_json())).get("")


@pytest.mark.parametrize(
    "build", [plain, behind_shapes, behind_operations, nested, beside_a_dense_layer, twice, in_each_step]
)
def test_an_input_that_is_looked_up_is_found(build: Callable[[], Any]) -> None:
    whole = found(build())
    assert whole is not None
    assert [size for _, size in whole.lookups] == [10]


def test_each_of_several_inputs_is_looked_at_for_itself() -> None:
    words, table = keras.Input((6,), name="w"), keras.Input((2,), name="t")
    codes = keras.Input((1,), dtype="int8", name="c")
    looked_up = layers.Flatten()(layers.Embedding(10, 3)(words))
    model = keras.Model([words, table, codes], layers.Concatenate()([looked_up, layers.Dense(2)(table), codes]))
    found = integer_inputs(json.loads(model.to_json()))
    assert {name: len(whole.lookups) for name, whole in found.items()} == {"w": 1, "c": 0}


def test_an_input_declared_as_integers_is_found() -> None:
    pixels = keras.Sequential([keras.Input((4,), dtype="uint8"), layers.Rescaling(1 / 255), layers.Dense(2)])
    assert found(pixels) == IntegerInput("uint8", ())


def test_numbers_that_a_layer_changes_first_may_be_scaled() -> None:
    inputs = keras.Input((6,))
    assert found(keras.Model(inputs, layers.Embedding(10, 3)(layers.Rescaling(9.0)(inputs)))) is None
    assert found(keras.Sequential([keras.Input((6,)), layers.Dense(2)])) is None


@pytest.mark.parametrize(
    ("whole", "x", "reason"),
    [
        (IntegerInput("float32", (("words", 10),)), [3, 10], "the token 10, and the embedding 'words' knows 0…9: give"),
        (IntegerInput("int32", (("words", 10),)), [3, -1], "the token -1, .* number the tokens from 0"),
        (IntegerInput("float32", (("words", 10),)), [0.5, 1.0], "numbers that are not whole"),
        (IntegerInput("float32", (("words", 2**25),)), [2**24 + 1], "cannot tell from others: begin the model with"),
        (IntegerInput("uint8", ()), [256], "which an input of uint8 cannot tell from others"),
        (IntegerInput("int64", ()), [2**31], "at most int32"),
    ],
)
def test_numbers_that_it_cannot_take_are_refused(whole: IntegerInput, x: list[float], reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        whole.check("x_train", np.array([x]))
    assert "\n" not in str(caught.value)


def test_numbers_that_it_can_take_are_not() -> None:
    IntegerInput("float32", (("words", 10),)).check("x_train", np.array([[0.0, 9.0]]))
    IntegerInput("int32", (("words", 2**25),)).check("x_train", np.array([[2**24 + 1]]))
