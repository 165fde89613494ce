"""Low-rank adaptation: which layers get it, what is trained, and that a merged model predicts the same."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.job.model import LoraSettings, ModelSettings
from vcdl.models.build import BuiltModel, build_model
from vcdl.models.lora import has_lora, merged
from vcdl.wire.weights import assign, assign_frozen

pytestmark = pytest.mark.keras

TOKENS = np.random.default_rng(1).integers(50, size=(5, 8))


def built(folder: Path, train: tuple[str, ...] | None = None, **lora: Any) -> BuiltModel:
    inputs = keras.Input((8,), dtype="int32")
    x = layers.Embedding(50, 20, name="embedding")(inputs)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(8, 16), bias_axes="d", name="einsum")(x)
    x = layers.LayerNormalization(name="norm")(x)
    x = layers.Dense(12, activation="relu", name="dense")(layers.Flatten()(x))
    keras.Model(inputs, layers.Dense(3, name="head")(x)).save(folder / "m.keras")
    settings = ModelSettings(keras=folder / "m.keras", train=train, lora=LoraSettings(**lora))
    return build_model(settings, (8,), 3, seed=4)


def model_of(model: BuiltModel) -> keras.Model:
    loaded = load_model(model.json)
    assign(loaded, model.weights)
    assign_frozen(loaded, model.frozen)
    return loaded


def trained(model: BuiltModel) -> set[str]:
    return {"/".join(weight.path.split("/")[-2:]) for weight in load_model(model.json).trainable_weights}


def test_the_matrices_of_all_kinds_of_layers_are_trained_and_nothing_else_but_their_bias(tmp_path: Path) -> None:
    model = built(tmp_path, rank=2, layers=("e*", "dense"))
    assert trained(model) == {
        "embedding/lora_embeddings_a", "embedding/lora_embeddings_b", "einsum/lora_kernel_a", "einsum/lora_kernel_b",
        "einsum/bias", "dense/lora_kernel_a", "dense/lora_kernel_b", "dense/bias",
    }  # fmt: skip
    np.testing.assert_allclose(
        model_of(model)(TOKENS), keras.models.load_model(tmp_path / "m.keras")(TOKENS), atol=1e-6
    )
    assert built(tmp_path, rank=2, layers=("e*", "dense")).weights.shape == model.weights.shape


def test_what_train_names_is_trained_beside_them(tmp_path: Path) -> None:
    model = built(tmp_path, ("head",), rank=2, layers=("dense",))
    assert trained(model) == {
        "dense/lora_kernel_a", "dense/lora_kernel_b", "dense/bias", "head/kernel", "head/bias",
    }  # fmt: skip


def test_a_merged_model_is_a_plain_one_that_predicts_the_same(tmp_path: Path) -> None:
    model = built(tmp_path, rank=2)
    adapted = model_of(model)
    before = np.asarray(adapted(TOKENS))
    assign(adapted, np.random.default_rng(2).normal(size=model.weights.size).astype(np.float32))
    plain = merged(adapted)
    plain.save(tmp_path / "plain.keras")
    again = keras.models.load_model(tmp_path / "plain.keras")
    assert not has_lora(again)
    assert "lora" not in again.to_json()
    assert [w.shape for w in again.weights] == [w.shape for w in keras.models.load_model(tmp_path / "m.keras").weights]
    np.testing.assert_allclose(again(TOKENS), adapted(TOKENS), rtol=1e-3, atol=1e-3)
    assert np.abs(np.asarray(adapted(TOKENS)) - before).max() > 0.1, "or nothing was merged"


def test_a_model_without_them_is_merged_already() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    assert merged(model) is model


@pytest.mark.parametrize(
    ("patterns", "words"), [(("norm",), "no layer that it names can be adapted"), (("x*",), r"lora > layers: no layer")]
)
def test_layers_that_cannot_be_adapted_are_refused(patterns: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        built(tmp_path, layers=patterns)


def test_a_model_that_was_adapted_before_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.layers[0].enable_lora(2)
    (tmp_path / "m.json").write_text(model.to_json())
    with pytest.raises(ModelError, match="lora is already enabled"):
        build_model(ModelSettings(keras_json=tmp_path / "m.json", lora=LoraSettings()), (4,), 3)
