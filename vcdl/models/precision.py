"""Mixed precision: layers compute in a shorter number format, and store their weights in float32."""

from typing import Any

from vcdl.client.model import last_layers


def compute_with(model: Any, policy: str) -> None:
    """Apply a precision policy to all float32 layers except the last ones, from which the loss is computed."""
    import keras

    # Probabilities of bfloat16 have two to three digits. A loss of their logarithms would be too coarse to follow.
    last = last_layers(model)
    for layer in model._flatten_layers(include_self=False):
        is_plain = not isinstance(layer, keras.Model | keras.layers.InputLayer) and layer.dtype_policy.name == "float32"
        if is_plain and id(layer) not in last:
            layer.dtype_policy = policy
