"""Layers that turn text into numbers are applied to the data; the model behind them trains and predicts as before."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import vcdl
from vcdl.api.lookups import apply_lookups, split_off
from vcdl.errors import DataError

pytestmark = [pytest.mark.keras, pytest.mark.slow]
WORDS = ["a good film", "bad", "good good", "a bad bad film"]


def classifier() -> Any:
    lookup = keras.layers.TextVectorization(max_tokens=20)
    lookup.adapt(WORDS)
    model = keras.Sequential(
        [keras.Input((), dtype="string"), lookup, keras.layers.Embedding(20, 4), keras.layers.GlobalAveragePooling1D(),
         keras.layers.Dense(2, activation="softmax")]
    )  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def of_two_inputs() -> Any:
    kind, size = keras.Input((1,), dtype="string", name="kind"), keras.Input((2,), name="size")
    lookup = keras.layers.StringLookup(vocabulary=["cat", "dog"], output_mode="one_hot", name="kinds")
    both = keras.layers.Concatenate()([lookup(kind), keras.layers.Dense(3)(size)])
    model = keras.Model({"kind": kind, "size": size}, keras.layers.Dense(1, name="out")(both))
    model.compile("adam", "mse")
    return model


def test_the_model_behind_predicts_the_same_from_numbers() -> None:
    whole = classifier()
    rest, lookups = split_off(whole)
    numbers = apply_lookups(lookups, "x", WORDS, [])
    assert np.array_equal(rest(numbers), whole(keras.ops.convert_to_tensor(WORDS)))
    assert rest.get_compile_config() == whole.get_compile_config()


def test_a_lookup_of_one_input_leaves_the_other_as_it_is() -> None:
    whole = of_two_inputs()
    rest, lookups = split_off(whole)
    x = {"kind": np.array([["dog"], ["cat"], ["cow"]]), "size": np.ones((3, 2), np.float32)}
    numbers = apply_lookups(lookups, "x", x, ["kind", "size"])
    assert list(lookups) == ["kind"]
    assert numbers["size"] is x["size"]
    expected = whole({name: keras.ops.convert_to_tensor(part) for name, part in x.items()})
    assert np.allclose(rest(numbers), expected, atol=1e-6)


def test_a_model_without_them_stays_itself() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    assert split_off(model) == (model, {})


def test_texts_of_unequal_batches_are_padded_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lookups = split_off(classifier())
    at_once = apply_lookups(lookups, "x", WORDS, [])
    monkeypatch.setattr("vcdl.api.lookups._SAMPLES", 1)
    assert np.array_equal(apply_lookups(lookups, "x", WORDS, []), at_once)


def test_samples_that_it_does_not_take_are_refused_with_what_to_do() -> None:
    _, lookups = split_off(classifier())
    with pytest.raises(DataError, match=r"x: the layer text_vectorization.* cannot turn it into numbers .* adapt"):
        apply_lookups(lookups, "x", [["a", "b"], ["c"]], [])


@pytest.mark.process
@pytest.mark.keras
def test_a_text_classifier_trains_from_its_texts(tmp_path: Path) -> None:
    y = np.array([1, 0, 1, 0] * 40)
    run = vcdl.train(
        classifier(), WORDS * 40, y, epochs=12, shards=2, training={"learning_rate": 0.03}, out=tmp_path / "run",
        validation_data=(WORDS * 4, y[:16]), show=False,
    ).wait()  # fmt: skip
    assert run.history.history["val_accuracy"][-1] == 1
