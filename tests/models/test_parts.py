"""Settings of layers inside layers: LoRA in attention, frozen projections, int8 kernels; kept, trained and merged."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.models.adapted import has_lora
from vcdl.api.given import write_model
from vcdl.client.model import load_model
from vcdl.client.parts import model_to_json
from vcdl.client.trainer import Trainer
from vcdl.errors import ModelError
from vcdl.job.model import LoraSettings, ModelSettings
from vcdl.models.build import BuiltModel, build_model
from vcdl.models.footprint import footprint_of
from vcdl.models.lora import merge
from vcdl.wire.frozen import read_frozen, write_frozen
from vcdl.wire.layout import assign
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

TOKENS = np.random.default_rng(1).integers(40, size=(64, 8)).astype(np.int32)
LABELS = TOKENS[:, 0] % 3
TRAINED = Training(Named("adam"), 0.02, 16, 3, Named("sparse_categorical_crossentropy"))
ATTENTION = {
    "multi_head": lambda: layers.MultiHeadAttention(2, 8, name="attention"),
    "grouped": lambda: layers.GroupQueryAttention(8, 4, 2, name="attention"),
}


def transformer(kind: str = "multi_head", dtype: str = "float32") -> Any:
    """A block of a Transformer inside a model, between an embedding and a head."""
    keras.utils.set_random_seed(3)
    inner = keras.Input((8, 16))
    x = layers.LayerNormalization(name="norm")(inner)
    x = inner + ATTENTION[kind]()(x, x, use_causal_mask=True)
    block = keras.Model(inner, layers.Dense(16, activation="gelu", name="up")(x), name="block")
    inputs = keras.Input((8,), dtype="int32")
    x = block(layers.Embedding(40, 16, name="embedding")(inputs))
    x = layers.TimeDistributed(layers.Dense(6, name="within"), name="each")(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax", name="head")(layers.Flatten()(x)))


def built(folder: Path, model: Any, **settings: Any) -> BuiltModel:
    model.save(folder / "m.keras")
    return build_model(ModelSettings(keras=folder / "m.keras", **settings), (8,), 3, seed=4)


def model_of(model: BuiltModel) -> Any:
    loaded = load_model(model.json, model.frozen, draws_weights=False)
    assign(loaded, model.weights)
    return loaded


def told(model: Any) -> Any:
    return keras.ops.convert_to_numpy(model(TOKENS))


def trained(model: Any) -> set[str]:
    return {"/".join(weight.path.split("/")[-2:]) for weight in model.trainable_weights}


def matrices(*names: str) -> set[str]:
    return {f"{name}/{what}" for name in names for what in ("lora_kernel_a", "lora_kernel_b", "bias")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["multi_head", "grouped"])
@pytest.mark.parametrize("patterns", [("query*", "value*"), ("block/attention/[qv]*",)])
def test_patterns_name_projections_inside_attention(kind: str, patterns: tuple[str, ...], tmp_path: Path) -> None:
    given = transformer(kind)
    model = built(tmp_path, given, train=("head",), lora=LoraSettings(rank=2, layers=patterns))
    loaded = model_of(model)
    assert trained(loaded) == matrices("query", "value") | {"head/kernel", "head/bias"}
    np.testing.assert_allclose(told(loaded), told(given), atol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("patterns", "adapted"),
    [
        (("attention",), {"query", "key", "value", "attention_output"}),
        (("block",), {"query", "key", "value", "attention_output", "up"}),
        (("each",), {"within"}),
        (("within",), {"within"}),
    ],
)
def test_a_pattern_for_the_layer_around_adapts_all_inside(
    patterns: tuple[str, ...], adapted: set[str], tmp_path: Path
) -> None:
    model = built(tmp_path, transformer(), lora=LoraSettings(rank=2, layers=patterns))
    assert trained(load_model(model.json)) == matrices(*adapted)


def test_without_patterns_all_are_adapted_inside_attention_too(tmp_path: Path) -> None:
    model = built(tmp_path, transformer(), lora=LoraSettings(rank=2))
    assert {name.split("/")[0] for name in trained(load_model(model.json))} == {
        "embedding", "query", "key", "value", "attention_output", "up", "within", "head",
    }  # fmt: skip


def test_an_unknown_projection_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lora > layers: no layer with weights is named 'querry'.*query"):
        built(tmp_path, transformer(), lora=LoraSettings(layers=("querry",)))


SETTINGS = {
    "lora": {"lora": LoraSettings(rank=2)},
    "int8": {"frozen": "int8", "train": ("head",)},
    "int8 and lora": {"frozen": "int8", "lora": LoraSettings(rank=2)},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_model_is_trained_and_merged_into_a_plain_one_that_predicts_the_same(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    given = transformer()
    model = built(tmp_path, given, **settings)
    trainer = Trainer(model.json, TRAINED, model.frozen)
    trainer.begin(trainer.with_moments(model.weights), 1, 0.02, 12)
    order = np.concatenate([np.random.default_rng(epoch).permutation(len(TOKENS)) for epoch in range(30)])
    losses = trainer.steps(TOKENS, LABELS, order, 16)
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])
    plain = merge(trainer.model)
    plain.save(tmp_path / "plain.keras")
    again = keras.models.load_model(tmp_path / "plain.keras")
    assert {weight.dtype for weight in again.weights} == {"float32"}
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in given.weights]
    assert not has_lora(again)
    np.testing.assert_allclose(told(again), told(trainer.model), atol=1e-4)
    assert np.abs(told(again) - told(given)).max() > 0.05, "or nothing was trained"


def test_frozen_kernels_take_a_byte_a_weight_and_predict_nearly_the_same(tmp_path: Path) -> None:
    given = transformer()
    whole = built(tmp_path, given, train=("head",))
    model = built(tmp_path, given, train=("head",), frozen="int8")
    loaded = model_of(model)
    kernels = [weight for weight in loaded.weights if weight.dtype == "int8"]
    assert {weight.path.split("/")[-2] for weight in kernels} == {
        "embedding", "query", "key", "value", "attention_output", "up",
    }  # fmt: skip
    assert model.frozen.nbytes < 0.5 * whole.frozen.nbytes  # biases, norms and scales stay float32
    assert footprint_of(loaded).frozen == model.frozen.size
    assert 0 < np.abs(told(loaded) - told(given)).max() < 0.02
    named = write_frozen(tmp_path / "frozen.h5", model.frozen)
    assert read_frozen(tmp_path / "frozen.h5", named).tobytes() == model.frozen.tobytes()


def test_int8_where_nothing_is_frozen_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="frozen: int8: no frozen layer can be int8"):
        built(tmp_path, transformer(), frozen="int8")


def users_own(quantized: bool) -> Any:
    """A model whose user has adapted and frozen parts of its attention."""
    model = transformer()
    attention = model.get_layer("block").get_layer("attention")
    attention.key_dense.trainable = False
    attention.query_dense.enable_lora(2, lora_alpha=5)
    attention.value_dense.enable_lora(2)
    if quantized:
        attention.key_dense.quantize("int8")
        attention.query_dense.quantize("int8")
    return model


@pytest.mark.sampled(2)
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("way", ["python", "vcdl.train"])
def test_a_users_own_settings_inside_attention_are_kept(
    way: str, quantized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = users_own(quantized)
    settings = ModelSettings(python="m:build", python_folder=tmp_path)
    if way == "vcdl.train":
        files: dict[str, Any] = {key: tmp_path / name for key, name in write_model(tmp_path, model).items()}
        settings = ModelSettings(**files)
    monkeypatch.setattr("vcdl.models.build.call_builder", lambda *_: model)
    built = build_model(settings, (8,), 3)
    loaded = model_of(built)
    assert trained(loaded) == trained(model)
    assert loaded.get_layer("block").get_layer("attention").query_dense.lora_alpha == 5
    assert [weight.dtype for weight in loaded.weights] == [weight.dtype for weight in model.weights]
    np.testing.assert_allclose(told(loaded), told(model), atol=1e-5)


HOSTILE = {
    "of another model": {"block/attention": {"gate": {"frozen": True}}},
    "no parts": [1],
    "no settings": {"block/attention": 5},
    "no setting": {"block/attention": {"query": 5}},
    "an unknown setting": {"block/attention": {"query": {"run": "code"}}},
    "another type": {"block/attention": {"query": {"int8": "int4"}}},
    "a rank of text": {"block/attention": {"query": {"lora": ["a", "b"]}}},
    "a rank below one": {"block/attention": {"query": {"lora": [-1, 1]}}},
    "a code": {"block/attention": {"query": {"lora": {"class_name": "__lambda__", "config": {"value": ""}}}}},
}


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_settings_that_vcdl_does_not_write_are_refused(parts: Any) -> None:
    with pytest.raises(ModelError, match="part"):
        load_model(json.dumps({**json.loads(transformer().to_json()), "parts": parts}))


def test_a_model_without_such_settings_keeps_keras_own_json() -> None:
    model = transformer()
    assert model_to_json(model) == model.to_json()


def test_a_quantization_that_is_not_trained_is_refused() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    model.layers[0].quantize("int8")
    with pytest.raises(ModelError, match="only int8 can be trained"):
        load_model(model.to_json().replace('"mode": "int8"', '"mode": "int4"'))
