"""Low-rank adaptation: which layers get it, what is trained, and that a merged model predicts the same."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.models.adapted import has_lora
from vcdl.client.model import load_model
from vcdl.client.trainer import Trainer
from vcdl.errors import ModelError
from vcdl.job.model import LoraSettings, ModelSettings
from vcdl.models.build import BuiltModel, build_model
from vcdl.models.lora import merge
from vcdl.wire.layout import assign, assign_frozen
from vcdl.wire.workunit import Named, Training

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


def told(model: Any, x: Any) -> Any:
    """What a model gives, of any backend."""
    return keras.ops.convert_to_numpy(model(x))


def trained(model: BuiltModel) -> set[str]:
    return {"/".join(weight.path.split("/")[-2:]) for weight in load_model(model.json).trainable_weights}


def test_the_matrices_of_all_kinds_of_layers_are_trained_and_nothing_else_but_their_bias(tmp_path: Path) -> None:
    model = built(tmp_path, rank=2, layers=("e*", "dense"))
    assert trained(model) == {
        "embedding/lora_embeddings_a", "embedding/lora_embeddings_b", "einsum/lora_kernel_a", "einsum/lora_kernel_b",
        "einsum/bias", "dense/lora_kernel_a", "dense/lora_kernel_b", "dense/bias",
    }  # fmt: skip
    np.testing.assert_allclose(
        told(model_of(model), TOKENS), told(keras.models.load_model(tmp_path / "m.keras"), TOKENS), atol=1e-6
    )
    assert built(tmp_path, rank=2, layers=("e*", "dense")).weights.shape == model.weights.shape


def test_what_train_names_is_trained_beside_them(tmp_path: Path) -> None:
    model = built(tmp_path, ("head",), rank=2, layers=("dense",))
    assert trained(model) == {
        "dense/lora_kernel_a", "dense/lora_kernel_b", "dense/bias", "head/kernel", "head/bias",
    }  # fmt: skip


def test_without_patterns_what_train_names_keeps_its_kernel(tmp_path: Path) -> None:
    assert {name for name in trained(built(tmp_path, ("head",), rank=2)) if name.startswith("head")} == {
        "head/kernel",
        "head/bias",
    }


def test_a_merged_model_is_a_plain_one_that_predicts_the_same(tmp_path: Path) -> None:
    model = built(tmp_path, rank=2)
    adapted = model_of(model)
    before = told(adapted, TOKENS)
    assign(adapted, np.random.default_rng(2).normal(size=model.weights.size).astype(np.float32))
    plain = merge(adapted)
    plain.save(tmp_path / "plain.keras")
    again = keras.models.load_model(tmp_path / "plain.keras")
    assert not has_lora(again)
    assert "lora" not in again.to_json()
    assert [w.shape for w in again.weights] == [w.shape for w in keras.models.load_model(tmp_path / "m.keras").weights]
    np.testing.assert_allclose(told(again, TOKENS), told(adapted, TOKENS), rtol=1e-3, atol=1e-3)
    assert np.abs(told(adapted, TOKENS) - before).max() > 0.1, "or nothing was merged"


def test_a_model_without_them_is_merged_already() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    assert merge(model) is model


@pytest.mark.parametrize(
    ("patterns", "words"), [(("norm",), "no layer that it names can be adapted"), (("x*",), r"lora > layers: no layer")]
)
def test_layers_that_cannot_be_adapted_are_refused(patterns: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        built(tmp_path, layers=patterns)


X = np.random.default_rng(3).normal(size=(256, 6)).astype(np.float32)
Y = (X @ np.random.default_rng(4).normal(size=(6, 12)) @ np.random.default_rng(5).normal(size=(12, 3))).argmax(-1)
TRAINED = Training(Named("adam"), 0.02, 32, 20, Named("sparse_categorical_crossentropy"))


def users_own(alpha: float | None = None) -> Any:
    """A model whose user has called `enable_lora()`."""
    keras.utils.set_random_seed(1)
    hidden = [layers.Dense(16, activation="relu"), layers.EinsumDense("ab,bc->ac", 8, bias_axes="c")]
    model = keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(3, activation="softmax")])
    for layer in model.layers:
        layer.enable_lora(4, lora_alpha=alpha)
    return model


def came_in(way: str, folder: Path, model: Any) -> BuiltModel:
    (folder / "m.json").write_text(model.to_json())
    model.save(folder / "m.keras")
    model.save_weights(folder / "m.weights.h5")
    np.savez(folder / "m.npz", *model.get_weights())
    (folder / "built.py").write_text("import keras\ndef build():\n    return keras.models.load_model('m.keras')\n")
    ways: dict[str, dict[str, Any]] = {
        "keras": {"keras": folder / "m.keras"},
        "weights.h5": {"keras_json": folder / "m.json", "weights": folder / "m.weights.h5"},
        "keras as weights": {"keras_json": folder / "m.json", "weights": folder / "m.keras"},
        "npz": {"keras_json": folder / "m.json", "weights": folder / "m.npz"},
        "json alone": {"keras_json": folder / "m.json"},
        "python": {"python": "built:build", "python_folder": folder},
    }
    return build_model(ModelSettings(**ways[way]), (6,), 3, seed=2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["keras", "weights.h5", "keras as weights", "npz", "json alone", "python"])
def test_the_matrices_of_a_users_own_model_are_trained_whichever_way_it_comes_in(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = users_own()
    built = came_in(way, tmp_path, model)
    if way != "json alone":
        np.testing.assert_allclose(told(model_of(built), X), told(model, X), atol=1e-5)
    trainer = Trainer(built.json, TRAINED, built.frozen)
    begin = trainer.with_moments(built.weights)
    order = np.concatenate([np.random.default_rng(epoch).permutation(len(X)) for epoch in range(20)])
    trainer.begin(begin, 1, 0.02, len(order) // 32)
    losses = trainer.steps(X, Y, order, 32)
    end = trainer.finish()
    for variable in trainer.layout.model.variables:
        part = slice(variable.offset, variable.offset + variable.size)
        assert np.abs(end[part] - begin[part]).max() > 0.01, variable.path
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(X, Y, batch_size=32, epochs=20, verbose=0)
    _, by_fit = model.evaluate(X, Y, verbose=0)
    ours = np.mean(told(merge(trainer.model), X).argmax(-1) == Y)
    assert ours > by_fit - 0.05
    assert losses[-1] < losses[0]


def test_the_scale_of_the_product_is_the_users(tmp_path: Path) -> None:
    model = users_own(alpha=32)
    for weight in model.trainable_weights:
        weight.assign(np.random.default_rng(7).normal(size=weight.shape))
    (tmp_path / "m.json").write_text(model.to_json())
    np.savez(tmp_path / "m.npz", *model.get_weights())
    built = build_model(ModelSettings(keras_json=tmp_path / "m.json", weights=tmp_path / "m.npz"), (6,), 3)
    np.testing.assert_allclose(told(model_of(built), X), told(model, X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(told(merge(model_of(built)), X), told(model, X), rtol=1e-3, atol=1e-4)


def test_a_model_that_was_adapted_before_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.layers[0].enable_lora(2)
    (tmp_path / "m.json").write_text(model.to_json())
    with pytest.raises(ModelError, match="lora is already enabled"):
        build_model(ModelSettings(keras_json=tmp_path / "m.json", lora=LoraSettings()), (4,), 3)
