"""A multi-layer perceptron, for tables and first tries."""

from collections.abc import Sequence
from typing import Any

from vcdl.models.ending import output_layer


def mlp(
    input_shape: tuple[int, ...], outputs: int, task: str, units: Sequence[int] = (128,), dropout: float = 0.0
) -> Any:
    """Build a dense ReLU layer for each number in `units`, each followed by dropout if `dropout` is not 0."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Flatten(name="flatten")(inputs)
    for number, width in enumerate(units, start=1):
        x = layers.Dense(width, activation="relu", name=f"dense_{number}")(x)
        if dropout:
            x = layers.Dropout(dropout, name=f"dropout_{number}")(x)
    # Keras' own initializer, here and in the hidden layers: he_normal makes the first weights of a table too large for
    # a short training (docs/decisions/118).
    x = output_layer(outputs, task, "glorot_uniform")(x)
    if task == "autoencoder" and len(input_shape) > 1:
        x = layers.Reshape(input_shape, name="reshape")(x)
    return keras.Model(inputs, x, name="mlp")
