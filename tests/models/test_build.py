"""The built-in models, models from JSON and from Python, and the weights they start with."""

from pathlib import Path

import keras
import numpy as np
import pytest

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.job.model import ModelSettings
from vcdl.models.build import build_model_json, initial_weights
from vcdl.wire.workunit import Named

pytestmark = pytest.mark.keras


def builtin(name: str, **arguments: object) -> ModelSettings:
    return ModelSettings(builtin=Named(name, arguments))


def trainable(model: keras.Model) -> int:
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def test_small_cnn_has_the_published_size_on_fashion_mnist() -> None:
    model = load_model(build_model_json(builtin("small_cnn"), (28, 28, 1), 10))
    assert model.count_params() == 105_866
    assert model.output_shape == (None, 10)


@pytest.mark.nightly
def test_resnet_v2_of_depth_164_is_the_papers_model_exactly() -> None:
    model = load_model(build_model_json(builtin("resnet_v2", depth=164), (32, 32, 3), 10))
    assert len(model.layers) == 552
    assert model.count_params() == 4_972_746
    assert trainable(model) == 4_941_578
    kernels = [layer for layer in model.layers if hasattr(layer, "kernel_initializer")]
    assert {type(layer.kernel_initializer).__name__ for layer in kernels} == {"HeNormal"}


@pytest.mark.parametrize("depth", [2, 12, 163])
def test_resnet_v2_of_another_depth_is_refused(depth: int) -> None:
    from vcdl.models.resnet_v2 import resnet_v2

    with pytest.raises(ModelError, match=r"9·n \+ 2"):
        resnet_v2((32, 32, 3), 10, "classification", depth)


def test_mlp_has_the_layers_that_are_asked_for() -> None:
    model = load_model(build_model_json(builtin("mlp", units=[64, 32], dropout=0.2), (8, 8, 1), 10))
    assert [layer.name for layer in model.layers] == [
        "input", "flatten", "dense_1", "dropout_1", "dense_2", "dropout_2", "output",
    ]  # fmt: skip
    assert model.count_params() == 64 * 65 + 32 * 65 + 10 * 33


def test_the_first_weights_of_an_mlp_are_small_for_a_table_of_few_columns() -> None:
    model = load_model(build_model_json(builtin("mlp", units=[64, 32]), (10,), 1, "regression"))
    deviation = float(model.get_layer("dense_1").kernel.numpy().std())
    assert deviation == pytest.approx((2 / (10 + 64)) ** 0.5, rel=0.2)  # he_normal's is 2.7 times as large


def test_the_json_of_a_model_does_not_depend_on_what_was_built_before() -> None:
    first = build_model_json(builtin("resnet_v2", depth=20), (32, 32, 3), 10)
    assert build_model_json(builtin("resnet_v2", depth=20), (32, 32, 3), 10) == first


def test_the_seed_decides_the_first_weights() -> None:
    model_json = build_model_json(builtin("small_cnn"), (28, 28, 1), 10)
    first = initial_weights(model_json, 7)
    assert first.shape == (105_866,)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(initial_weights(model_json, 7), first)
    assert not np.array_equal(initial_weights(model_json, 8), first)


def test_a_model_in_a_json_file_is_taken(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("adam", "mse")
    (tmp_path / "model.json").write_text(model.to_json())
    built = build_model_json(ModelSettings(keras_json=tmp_path / "model.json"), (4,), 3)
    assert load_model(built).count_params() == 15
    assert "Adam" not in built


def test_a_json_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot be read"):
        build_model_json(ModelSettings(keras_json=tmp_path / "model.json"), (4,), 3)


GOOD = """
import keras

def shaped(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])

def fixed():
    return shaped((4,), 2)

def optional(width=3):
    return shaped((4,), width)
"""


@pytest.mark.parametrize(("function", "outputs"), [("shaped", 5), ("fixed", 2), ("optional", 3)])
def test_a_python_function_beside_the_job_file_makes_the_model(function: str, outputs: int, tmp_path: Path) -> None:
    (tmp_path / "good_models.py").write_text(GOOD)
    settings = ModelSettings(python=f"good_models:{function}", python_folder=tmp_path)
    model = load_model(build_model_json(settings, (4,), 5))
    assert model.output_shape == (None, outputs)


BAD = {
    "raises": ("def build():\n    x = 1\n    raise KeyError('width')\n", r"bad_raises\.py:3: .*KeyError"),
    "keras fails": (
        "import keras\ndef build():\n    return keras.layers.Dense(-1)\n",
        r"bad_keras_fails\.py:3: .*ValueError",
    ),
    "syntax": ("def build(:\n", r"bad_syntax\.py:1: .*SyntaxError"),
    "leaves": ("raise SystemExit(3)\n", r"bad_leaves\.py:1: .*SystemExit"),
    "imports": ("import no_such_package_here\n", r"bad_imports\.py:1: .*no_such_package_here"),
    "wrong kind": ("def build():\n    return 7\n", "returned int, expected a keras.Model"),
    "arguments": ("def build(a, b, c):\n    pass\n", r"takes \(a, b, c\), expected no arguments"),
    "no function": ("x = 1\n", "has no function 'build'"),
    "lambda": (
        "import keras\ndef build():\n    return keras.Sequential([keras.Input((4,)), keras.layers.Lambda(abs)])\n",
        "Lambda",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_python_function_that_fails_is_named_with_its_line(case: str, tmp_path: Path) -> None:
    code, reason = BAD[case]
    module = f"bad_{case.replace(' ', '_')}"
    (tmp_path / f"{module}.py").write_text(code)
    with pytest.raises(ModelError, match=reason):
        build_model_json(ModelSettings(python=f"{module}:build", python_folder=tmp_path), (4,), 5)
