"""Mixed precision: layers compute with shorter numbers, and keep their weights in float32."""

from typing import Any


def compute_with(model: Any, policy: str) -> None:
    """Give a policy of Keras to all layers that compute with float32, but for those that the model ends in.

    Short numbers would round what the loss is made of. The policy takes effect in the model's JSON.
    """
    import keras

    last = _last_layers(model)
    for layer in model._flatten_layers(include_self=False):
        is_plain = not isinstance(layer, keras.Model | keras.layers.InputLayer) and layer.dtype_policy.name == "float32"
        if is_plain and id(layer) not in last:
            layer.dtype_policy = policy


def _last_layers(model: Any) -> set[int]:
    """The layers that a model ends in, with all that is in them; of an operation its inputs."""
    import keras

    last: set[int] = set()
    ends = list(model.outputs)
    while ends:
        layer, call, _ = ends.pop()._keras_history
        if isinstance(layer, keras.Model):
            last |= _last_layers(layer)
        elif isinstance(layer, keras.Layer):
            last |= {id(part) for part in layer._flatten_layers()}
        else:
            ends += layer._inbound_nodes[call].input_tensors
    return last
