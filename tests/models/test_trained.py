"""The layers that a job trains: by the model's own flags, and by patterns."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.job.model import ModelSettings
from vcdl.models.build import BuiltModel, build_model

pytestmark = pytest.mark.keras


def built(folder: Path, *train: str) -> BuiltModel:
    """A model with another one in it, built from its JSON with what the patterns name."""
    backbone = keras.Sequential(
        [keras.Input((4,)), layers.Dense(6, name="low"), layers.BatchNormalization(name="norm")], name="backbone"
    )
    inputs = keras.Input((4,))
    x = layers.Dropout(0.5, name="chance")(backbone(inputs))
    model = keras.Model(inputs, layers.Dense(3, name="head")(layers.Dense(5, name="middle")(x)))
    backbone.trainable = False
    (folder / "model.json").write_text(model.to_json())
    settings = ModelSettings(keras_json=folder / "model.json", train=train or None)
    return build_model(settings, (4,), 3, seed=1)


def trained(model: BuiltModel) -> set[str]:
    return {weight.path.split("/")[-2] for weight in load_model(model.json).trainable_weights}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), {"middle", "head"}),
        (("head",), {"head"}),
        (("h*", "mid?le"), {"middle", "head"}),
        (("backbone",), {"low", "norm"}),
        (("backbone/norm", "head"), {"norm", "head"}),
        (("*",), {"low", "norm", "middle", "head"}),
    ],
)
def test_patterns_name_what_is_trained_whatever_the_model_says(
    patterns: tuple[str, ...], names: set[str], tmp_path: Path
) -> None:
    model = built(tmp_path, *patterns)
    assert trained(model) == names
    assert model.weights.size + model.frozen.size == load_model(model.json).count_params()


@pytest.mark.parametrize("patterns", [None, ("head",)])
def test_a_layer_that_makes_its_weights_later_stays_frozen(patterns: tuple[str, ...] | None, tmp_path: Path) -> None:
    inputs = keras.Input((4, 3))
    x = layers.MultiHeadAttention(2, 2, name="attention")(inputs, inputs)
    model = keras.Model(inputs, layers.Dense(3, name="head")(layers.Flatten()(x)))
    model.get_layer("attention").trainable = patterns is not None
    (tmp_path / "model.json").write_text(model.to_json())
    limited = build_model(ModelSettings(keras_json=tmp_path / "model.json", train=patterns), (4, 3), 3, seed=1)
    assert trained(limited) == {"head"}
    assert limited.weights.size == 3 * 12 + 3


def test_a_layer_may_be_frozen_as_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "frozen_layer.py").write_text(
        "import keras\n\n"
        "def build():\n"
        "    x = inputs = keras.Input((4, 3))\n"
        "    x = keras.layers.MultiHeadAttention(2, 2, trainable=False)(x, x)\n"
        "    return keras.Model(inputs, keras.layers.Dense(3, name='head')(keras.layers.Flatten()(x)))\n"
    )
    settings = ModelSettings(python="frozen_layer:build", python_folder=tmp_path)
    assert trained(build_model(settings, (4, 3), 3, seed=1)) == {"head"}


@pytest.mark.parametrize(
    ("pattern", "advice"), [("haed", "did you mean head"), ("chance", ""), ("dense_*", "known here")]
)
def test_a_pattern_that_names_no_weights_is_refused(pattern: str, advice: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"model > train: no layer with weights is named .*{advice}"):
        built(tmp_path, "head", pattern)


def test_a_model_that_is_frozen_whole_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.trainable = False
    model.save(tmp_path / "m.keras")
    with pytest.raises(ModelError, match=r"every layer of the model is frozen.*model > train"):
        build_model(ModelSettings(keras=tmp_path / "m.keras"), (4,), 3)


def test_frozen_weights_are_those_of_the_file(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, name="low"), layers.Dense(3, name="head")])
    model.save(tmp_path / "m.keras")
    found = build_model(ModelSettings(keras=tmp_path / "m.keras", train=("head",)), (4,), 3)
    low, head = (np.concatenate([w.reshape(-1) for w in layer.get_weights()]) for layer in model.layers)
    np.testing.assert_array_equal(found.frozen, low)
    np.testing.assert_array_equal(found.weights, head)


PARTLY = """
import keras

def build(input_shape, outputs):
    model = keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])
    model.layers[0].kernel.trainable = False
    return model
"""


def test_a_layer_that_is_frozen_in_part_is_refused_as_no_json_says_so(tmp_path: Path) -> None:
    (tmp_path / "partly_frozen.py").write_text(PARTLY)
    with pytest.raises(ModelError, match="freeze whole layers, not their parts"):
        build_model(ModelSettings(python="partly_frozen:build", python_folder=tmp_path), (4,), 3)


def test_a_message_ends_its_list_of_layers_at_a_whole_name(tmp_path: Path) -> None:
    stack = [layers.Dense(2, name=f"a_layer_with_a_long_name_{at:03}") for at in range(40)]
    (tmp_path / "model.json").write_text(keras.Sequential([keras.Input((2,)), *stack]).to_json())
    with pytest.raises(ModelError, match=r"_\d{3}, …; `vcdl describe JOB.yaml --set model.train=null` lists all$"):
        build_model(ModelSettings(keras_json=tmp_path / "model.json", train=("zzz",)), (2,), 2)


def test_a_message_survives_a_name_that_is_longer_than_it(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(
        keras.Sequential([keras.Input((2,)), layers.Dense(2, name="a" * 400)]).to_json()
    )
    with pytest.raises(ModelError, match="known here: aaa"):
        build_model(ModelSettings(keras_json=tmp_path / "model.json", train=("zzz",)), (2,), 2)
