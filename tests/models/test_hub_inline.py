"""KerasHub's models become models of Keras' own layers that predict the same."""

import re
from typing import Any

import numpy as np
import pytest

from tests.models.hub_backbones import ARGUMENTS, REFUSED, drawn, samples_for, shapes_of
from vcdl.client.model import load_model
from vcdl.client.model_json import parse_config
from vcdl.errors import ModelError
from vcdl.models.hub_inline import holds_hub_layers, inline_model, trace

pytestmark = [pytest.mark.keras, pytest.mark.slow]
OFTEN = ("Albert", "Bert", "GPT2", "Llama", "MiT", "RoformerV2", "SwinTransformer", "ViT", "XLNet")
"""A kind of each: shared layers, several inputs, causal masks, rotary positions, dropped paths, refusals, windows."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OFTEN)
def test_a_backbone_of_keras_own_layers_predicts_the_same_or_is_refused(name: str) -> None:
    _check(name)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Layer '.*_attention' .* was passed an input with a mask")  # KerasHub's T5 itself
@pytest.mark.parametrize("name", sorted(set(ARGUMENTS) - set(OFTEN)))
def test_every_backbone_predicts_the_same_or_is_refused(name: str) -> None:
    _check(name)


def _check(name: str) -> None:
    import keras

    backbone = drawn(name)
    if name in REFUSED:
        with pytest.raises(ModelError, match=REFUSED[name]):
            inline_model(backbone, shapes_of(backbone))
        return
    made, variables = trace(backbone, shapes_of(backbone))
    text = made.to_json()
    parse_config(text)
    assert "keras_hub" not in text
    assert len({layer.name for layer in made.layers}) == len(made.layers)
    samples = samples_for(made, 5)  # another number than the one that was compared when it was made
    given = keras.tree.map_structure(lambda tensor: samples[str(tensor.name)], backbone.input)
    theirs, their_gradients = _called(backbone, given)
    ours, our_gradients = _called(made, samples if len(samples) > 1 else next(iter(samples.values())))
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5 * float(np.abs(one).max()), rtol=0)
    for weight, variable in zip(made.weights, variables, strict=True):
        one, other = their_gradients.pop(id(variable), None), our_gradients.get(id(weight))
        assert (one is None) == (other is None), weight.path
        if one is not None and other is not None:
            np.testing.assert_allclose(other.reshape(one.shape), one, atol=1e-4 * (np.abs(one).max() + 1e-3), rtol=0)
    assert not any(gradient.any() for gradient in their_gradients.values())  # of weights that it does not use


def _called(model: Any, samples: Any) -> tuple[list[Any], dict[int, Any]]:
    """Outputs, and the gradient of their sum of squares by the id of each weight."""
    import keras
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs = keras.tree.flatten(model(samples, training=False))
        total = sum(tf.reduce_sum(tf.cast(output, "float32") ** 2) for output in outputs)
    weights = model.trainable_weights
    gradients = tape.gradient(total, [weight.value for weight in weights])
    found = {id(w): tf.convert_to_tensor(g).numpy() for w, g in zip(weights, gradients, strict=True) if g is not None}
    return [np.asarray(output) for output in outputs], found


def test_dropout_and_names_stay_and_a_client_loads_the_model() -> None:
    import keras

    backbone = drawn("Bert")
    names = [layer.name for layer in backbone._flatten_layers()]
    made = inline_model(backbone, shapes_of(backbone))
    assert [layer.name for layer in backbone._flatten_layers()] == names
    kinds = [type(layer) for layer in made.layers]
    assert kinds.count(keras.layers.Dropout) == 1 + 2 * 2  # of the embeddings, and two in each block
    attentions = [layer for layer in made.layers if isinstance(layer, keras.layers.MultiHeadAttention)]
    assert [layer.get_config()["dropout"] for layer in attentions] == [0.1, 0.1]
    loaded = load_model(made.to_json())
    assert [weight.shape for weight in loaded.weights] == [weight.shape for weight in made.weights]
    assert not holds_hub_layers(made)
    assert holds_hub_layers(backbone)


def test_frozen_layers_stay_frozen() -> None:
    backbone = drawn("GPT2")
    backbone.trainable = False
    made = inline_model(backbone, shapes_of(backbone))
    assert made.trainable_weights == []


def test_an_activation_of_keras_hub_is_an_operation_however_often_its_layer_is_called() -> None:
    made = inline_model(backbone := drawn("Albert"), shapes_of(backbone))
    assert len(re.findall('"class_name": "Gelu"', made.to_json())) == 2


def test_a_model_of_ones_own_around_a_backbone_is_taken() -> None:
    import keras

    backbone = drawn("DistilBert")
    hidden = backbone(backbone.input)
    model = keras.Model(backbone.input, keras.layers.Dense(2, activation="softmax")(hidden[:, 0]))
    assert inline_model(model, shapes_of(backbone)).output_shape == (None, 2)


def test_a_lambda_in_front_of_a_backbone_is_what_is_refused_not_the_backbone() -> None:
    import keras

    backbone = drawn("Bert")
    inputs = keras.Input((8,), dtype="int32", name="token_ids")
    shifted = keras.layers.Lambda(lambda tokens: tokens + 0, output_shape=(8,), name="shift")(inputs)
    rest = {"segment_ids": keras.ops.zeros_like(inputs), "padding_mask": keras.ops.ones_like(inputs)}
    with pytest.raises(ModelError, match=r"layer 'shift' is a Lambda: it contains code.*use Keras' own layers"):
        inline_model(keras.Model(inputs, backbone({"token_ids": shifted, **rest})["pooled_output"]), {})


def test_a_length_that_nobody_says_is_refused() -> None:
    with pytest.raises(ModelError, match=r"the input .* has no fixed shape \(None,\)"):
        inline_model(drawn("DistilBert"), {})
