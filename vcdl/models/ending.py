"""Build first and last layers of the built-in models: from any input, to class probabilities or plain numbers."""

from typing import Any

from vcdl.errors import ModelError


def images(inputs: Any, builtin: str) -> Any:
    """Return the input as images (height, width, channels), with an axis added for grey ones. Raises ModelError."""
    from keras import layers

    shape = tuple(inputs.shape[1:])
    if len(shape) == 2:
        return layers.Reshape((*shape, 1), name="grey")(inputs)
    if len(shape) != 3:
        raise ModelError(
            f"{builtin} takes images of shape (height, width, channels), a sample of the data has {shape}: use mlp"
        )
    return inputs


def output_layer(outputs: int, task: str, initializer: str) -> Any:
    """Return the last layer: softmax over `outputs` classes, a sigmoid for each of several labels, or plain numbers."""
    from keras import layers

    activation = {"classification": "softmax", "multi_label": "sigmoid"}.get(task, "linear")
    return layers.Dense(outputs, activation=activation, kernel_initializer=initializer, name="output")
