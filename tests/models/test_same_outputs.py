"""The client's model, the evaluator's and the one that leaves the run say the same, whatever layers they have."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.models.adapted import has_lora
from vcdl.client.allowed import LAYERS, OPERATIONS
from vcdl.client.model import load_model
from vcdl.client.trainer import Trainer
from vcdl.job.model import ModelSettings
from vcdl.models.build import build_model
from vcdl.models.lora import merge
from vcdl.wire.layout import assign
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

SAMPLES = 6
TRAINING = Training(Named("sgd"), 0.01, 2, 1, Named("mean_squared_error"))
SERIES, TABLE, IMAGE, VOLUME = (6, 4), (4,), (8, 8, 3), (6, 6, 6, 2)


def cell(name: str) -> Callable[[], Any]:
    return lambda: layers.RNN(getattr(layers, name)(3))


def plain(names: str, *arguments: Any) -> dict[str, Callable[[], Any]]:
    """These layers, each with the same arguments."""
    return {name: partial(getattr(layers, name), *arguments) for name in names.split()}


ONE_INPUT: dict[tuple[int, ...], Mapping[str, Callable[[], Any]]] = {
    TABLE: {
        "Dense": lambda: layers.Dense(3), "ActivityRegularization": lambda: layers.ActivityRegularization(0.1),
        "Activation": lambda: layers.Activation("relu"), "RepeatVector": lambda: layers.RepeatVector(2),
        "Discretization": lambda: layers.Discretization(bin_boundaries=[-1.0, 0.5]),
        "CategoryEncoding": lambda: layers.CategoryEncoding(9, "multi_hot"),
        "Masking": lambda: keras.Sequential([layers.Reshape((2, 2)), layers.Masking(), layers.LSTM(2)]),
        "Reshape": lambda: layers.Reshape((2, 2)), "Rescaling": lambda: layers.Rescaling(2.0, 1.0),
        **plain(
            "Identity BatchNormalization LayerNormalization RMSNormalization UnitNormalization Normalization "
            "ReLU LeakyReLU PReLU ELU Softmax Flatten"
        ),
        **plain("Dropout AlphaDropout GaussianDropout GaussianNoise", 0.3),
    },
    SERIES: {
        "EinsumDense": lambda: layers.EinsumDense("abc,cd->abd", (6, 3)), "SimpleRNN": lambda: layers.SimpleRNN(3),
        "GRU": lambda: layers.GRU(3), "LSTM": lambda: layers.LSTM(3), "SimpleRNNCell": cell("SimpleRNNCell"),
        "GRUCell": cell("GRUCell"), "LSTMCell": cell("LSTMCell"), "RNN": cell("LSTMCell"),
        "StackedRNNCells": lambda: layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.LSTMCell(2)])),
        "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(3)),
        "TimeDistributed": lambda: layers.TimeDistributed(layers.BatchNormalization()),
        "SpectralNormalization": lambda: layers.SpectralNormalization(layers.Dense(3)),
        "GroupNormalization": lambda: layers.GroupNormalization(2), "Permute": lambda: layers.Permute((2, 1)),
        "SpatialDropout1D": lambda: layers.SpatialDropout1D(0.3), "Conv1D": lambda: layers.Conv1D(3, 2),
        "Conv1DTranspose": lambda: layers.Conv1DTranspose(3, 2), "DepthwiseConv1D": lambda: layers.DepthwiseConv1D(2),
        "SeparableConv1D": lambda: layers.SeparableConv1D(3, 2),
        "AveragePooling1D": lambda: layers.AveragePooling1D(2),
        "AdaptiveMaxPooling1D": lambda: layers.AdaptiveMaxPooling1D(2),
        "AdaptiveAveragePooling1D": lambda: layers.AdaptiveAveragePooling1D(2),
        **plain(
            "MaxPooling1D GlobalMaxPooling1D GlobalAveragePooling1D Cropping1D UpSampling1D "
            "ZeroPadding1D"
        ),
    },
    (512,): {"MelSpectrogram": lambda: layers.MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=4)},
    (512, 1): {"STFTSpectrogram": lambda: layers.STFTSpectrogram(frame_length=64, frame_step=32)},
    (4, 6, 6, 2): {
        "ConvLSTM2D": lambda: layers.ConvLSTM2D(2, 2), "Conv3D": lambda: layers.Conv3D(2, 2),
        "ConvLSTM1D": lambda: keras.Sequential([layers.Reshape((4, 12, 6)), layers.ConvLSTM1D(2, 2)]),
        "ConvLSTM3D": lambda: keras.Sequential([layers.Reshape((4, 3, 4, 3, 2)), layers.ConvLSTM3D(2, 2)]),
        "Conv3DTranspose": lambda: layers.Conv3DTranspose(2, 2),
        "SpatialDropout3D": lambda: layers.SpatialDropout3D(0.3),
        "AveragePooling3D": lambda: layers.AveragePooling3D(2),
        "AdaptiveMaxPooling3D": lambda: layers.AdaptiveMaxPooling3D(2),
        "AdaptiveAveragePooling3D": lambda: layers.AdaptiveAveragePooling3D(2),
        **plain(
            "MaxPooling3D GlobalMaxPooling3D GlobalAveragePooling3D Cropping3D UpSampling3D "
            "ZeroPadding3D"
        ),
    },
    IMAGE: {
        "Conv2D": lambda: layers.Conv2D(3, 2), "Conv2DTranspose": lambda: layers.Conv2DTranspose(3, 2),
        "DepthwiseConv2D": lambda: layers.DepthwiseConv2D(2), "SeparableConv2D": lambda: layers.SeparableConv2D(3, 2),
        "SpatialDropout2D": lambda: layers.SpatialDropout2D(0.3),
        "Resizing": lambda: layers.Resizing(4, 4), "CenterCrop": lambda: layers.CenterCrop(4, 4),
        "AveragePooling2D": lambda: layers.AveragePooling2D(2),
        "AdaptiveMaxPooling2D": lambda: layers.AdaptiveMaxPooling2D(2),
        "AdaptiveAveragePooling2D": lambda: layers.AdaptiveAveragePooling2D(2),
        **plain(
            "MaxPooling2D GlobalMaxPooling2D GlobalAveragePooling2D Cropping2D UpSampling2D "
            "ZeroPadding2D RandomFlip RandAugment AugMix RandomErasing RandomGaussianBlur Solarization "
            "RandomGrayscale RandomPerspective AutoContrast Equalization ContrastLimitedAdaptiveHistogramEqualization "
            "RandomElasticTransform RandomInvert"
        ),
        **plain("RandomBrightness RandomContrast RandomHue RandomRotation RandomSaturation RandomZoom RandomSharpness "
            "RandomColorDegeneration", 0.2),
        "RandomShear": lambda: layers.RandomShear((0, 0.1), (0, 0.1)), "RandomCrop": lambda: layers.RandomCrop(8, 8),
        "RandomTranslation": lambda: layers.RandomTranslation(0.1, 0.1),
        "RandomColorJitter": lambda: layers.RandomColorJitter(brightness_factor=0.2),
        "RandomPosterization": lambda: layers.RandomPosterization(4),
        "Pipeline": lambda: layers.Pipeline([layers.RandomFlip(), layers.RandomBrightness(0.2)]),
    },
}  # fmt: skip
TWO_INPUTS = {
    "Dot": lambda: layers.Dot(2),
    "MultiHeadAttention": lambda: layers.MultiHeadAttention(2, 2), "GroupQueryAttention":
    lambda: layers.GroupQueryAttention(2, 2, 1),
    **plain(
            "Concatenate Average Maximum Minimum Add Subtract Multiply Attention AdditiveAttention"
        ),
}  # fmt: skip
TOKENS = {"Embedding": lambda: layers.Embedding(9, 4), "ReversibleEmbedding": lambda: layers.ReversibleEmbedding(9, 4)}


def adapted(layer: Any, data: Any) -> Any:
    layer.adapt(data)
    return layer


def spread(shape: tuple[int, ...]) -> Any:
    """Inputs whose columns have very different scales."""
    scales = np.geomspace(1, 1000, shape[-1])
    return (np.random.default_rng(1).normal(size=(200, *shape)) * scales + 3 * scales).astype(np.float32)


def with_lora() -> Any:
    dense = layers.Dense(3)
    model = keras.Sequential([keras.Input(TABLE), dense])
    dense.enable_lora(2)
    return model


def frozen_statistics() -> Any:
    return layers.BatchNormalization(trainable=False)


ADAPTED: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
    "an adapted Normalization": (TABLE, lambda: adapted(layers.Normalization(), spread(TABLE))),
    "one for all columns": (TABLE, lambda: adapted(layers.Normalization(axis=None), spread(TABLE))),
    "one that inverts": (TABLE, lambda: adapted(layers.Normalization(invert=True), spread(TABLE))),
    "one with numbers": (TABLE, lambda: layers.Normalization(mean=[1.0, 2, 3, 4], variance=[1.0, 4, 9, 16])),
    "one inside of a model": (
        TABLE,
        lambda: keras.Sequential([keras.Input(TABLE), adapted(layers.Normalization(), spread(TABLE)), layers.Dense(3)]),
    ),
    "one in a wrapper": (SERIES, lambda: layers.TimeDistributed(adapted(layers.Normalization(), spread(TABLE)))),
    "one of half precision": (
        TABLE, lambda: adapted(layers.Normalization(dtype="mixed_bfloat16"), spread(TABLE)),
    ),
    "an adapted Discretization": (TABLE, lambda: adapted(layers.Discretization(num_bins=4), spread(TABLE))),
    "LoRA": (TABLE, with_lora),
    "frozen statistics": (TABLE, frozen_statistics),
    "spectral normalisation of a convolution": (IMAGE, lambda: layers.SpectralNormalization(layers.Conv2D(2, 2))),
}  # fmt: skip


def whole(inputs: Any, x: Any) -> Any:
    """A model that ends in numbers, as one is trained."""
    return keras.Model(inputs, layers.Dense(2, dtype="float32")(layers.Flatten()(layers.Activation("linear")(x))))


def case_of(name: str) -> tuple[Any, Any]:
    """A model with the layer, and samples for it."""
    rng = np.random.default_rng(2)
    if name in TWO_INPUTS:
        inputs = keras.Input(SERIES)
        make = TWO_INPUTS[name]
        other = inputs if name in ("MultiHeadAttention", "GroupQueryAttention") else None
        ends = (
            make()(inputs, layers.Dense(4)(inputs)) if other is not None else make()([inputs, layers.Dense(4)(inputs)])
        )
        return whole(inputs, ends), rng.normal(size=(SAMPLES, *SERIES))
    if name in TOKENS:
        inputs = keras.Input((5,), dtype="int32")
        return whole(inputs, TOKENS[name]()(inputs)), rng.integers(9, size=(SAMPLES, 5))
    if name in ADAPTED:
        shape, make = ADAPTED[name]
        x = spread(shape)[:SAMPLES]
    else:
        shape, make = next((shape, made[name]) for shape, made in ONE_INPUT.items() if name in made)
        x = rng.integers(0, 9, size=(SAMPLES, *shape)).astype(np.float32)
    inputs = keras.Input(shape)
    return whole(inputs, make()(inputs)), x.astype(np.float32)


CASES = [*(n for made in ONE_INPUT.values() for n in made), *TWO_INPUTS, *TOKENS, *ADAPTED]


def test_the_cases_are_all_layers_of_the_list() -> None:
    assert set(CASES) - set(ADAPTED) == LAYERS - {"InputLayer"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_client_evaluator_and_export_say_the_same(name: str, tmp_path: Path) -> None:
    given, x = case_of(name)
    given.save(tmp_path / "given.keras")
    built = build_model(ModelSettings(keras=tmp_path / "given.keras"), tuple(x.shape[1:]), 2, "regression")
    weights = np.random.default_rng(3).uniform(0.1, 1, built.weights.size).astype(np.float32)
    client = Trainer(built.json, TRAINING, built.frozen)
    client.begin(client.with_moments(weights), 1, 0.01, 1)
    evaluator = load_model(built.json, built.frozen)
    assign(evaluator, weights)
    merge(evaluator).save(tmp_path / "exported.keras")
    exported = keras.models.load_model(tmp_path / "exported.keras")
    expected = exported.predict(x, verbose=0)
    assert np.isfinite(expected).all()
    scale = np.abs(expected).max()
    for model in (client.model, evaluator):
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5 * scale)
    if name in ADAPTED and not has_lora(given):  # the user's own model, with the weights that were trained
        assign(given, weights)
        np.testing.assert_allclose(given.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")
def test_a_model_that_its_user_quantised_is_taken_and_exported_in_float32(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.quantize("int8")
    model.save(tmp_path / "m.keras")
    built = build_model(ModelSettings(keras=tmp_path / "m.keras"), (4,), 3)
    ours, x = load_model(built.json, built.frozen), spread((4,))
    assign(ours, built.weights)
    expected = model.predict(x, verbose=0)
    np.testing.assert_array_equal(ours.predict(x, verbose=0), expected)
    plain = merge(ours)
    assert {weight.dtype for weight in plain.weights} == {"float32"}
    np.testing.assert_allclose(plain.predict(x, verbose=0), expected, atol=0.05 * np.abs(expected).max())


def test_no_operation_has_a_state() -> None:
    for module, names in OPERATIONS.items():
        for name in names:
            operation = getattr(__import__(module, fromlist=[name]), name)
            assert not issubclass(operation, keras.Layer), name
            assert not any(hasattr(operation, part) for part in ("finalize_state", "load_own_variables")), name


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["keras", "weights.h5", "keras as weights", "npz", "python"])
def test_an_adapted_normalization_normalises_whichever_way_it_comes_in(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, x = case_of("an adapted Normalization")
    given.save("m.keras")
    given.save_weights("m.weights.h5")
    np.savez("m.npz", *given.get_weights())
    Path("m.json").write_text(given.to_json())
    Path("normed.py").write_text("import keras\ndef build():\n    return keras.models.load_model('m.keras')\n")
    ways: dict[str, dict[str, Any]] = {
        "keras": {"keras": "m.keras"},
        "weights.h5": {"keras_json": "m.json", "weights": "m.weights.h5"},
        "keras as weights": {"keras_json": "m.json", "weights": "m.keras"},
        "npz": {"keras_json": "m.json", "weights": "m.npz"},
        "python": {"python": "normed:build", "python_folder": tmp_path},
    }
    settings = {key: tmp_path / value if str(value).startswith("m.") else value for key, value in ways[way].items()}
    built = build_model(ModelSettings(**settings), TABLE, 2, "regression")
    client = load_model(built.json, built.frozen)
    assign(client, built.weights)
    np.testing.assert_allclose(client.predict(x, verbose=0), given.predict(x, verbose=0), rtol=1e-4, atol=1e-4)
