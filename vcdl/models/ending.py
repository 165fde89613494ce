"""Build the first and last layers of the built-in models, for any shape of samples and each kind of task."""

from typing import Any

from vcdl.errors import ModelError


def images(inputs: Any, builtin: str) -> Any:
    """Return the input as images of shape (height, width, channels); images without channels get one.

    Args:
        inputs: The symbolic input of the model.
        builtin: Name of the built-in model, for the message.

    Raises:
        ModelError: The samples are no images.
    """
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
    """Return the last layer: softmax for `classification`, sigmoid for `multi_label`, otherwise no activation."""
    from keras import layers

    activation = {"classification": "softmax", "multi_label": "sigmoid"}.get(task, "linear")
    return layers.Dense(outputs, activation=activation, kernel_initializer=initializer, name="output")
