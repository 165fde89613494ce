"""Mixed precision: layers compute with shorter numbers, and keep their weights in float32."""

from typing import Any

from vcdl.client.model import last_layers


def compute_with(model: Any, policy: str) -> None:
    """Give a policy of Keras to all layers that compute with float32, but for those that the model ends in.

    Short numbers would round what the loss is made of. The policy takes effect in the model's JSON.
    """
    import keras

    last = last_layers(model)
    for layer in model._flatten_layers(include_self=False):
        is_plain = not isinstance(layer, keras.Model | keras.layers.InputLayer) and layer.dtype_policy.name == "float32"
        if is_plain and id(layer) not in last:
            layer.dtype_policy = policy
