"""A small convolutional network: 105 866 weights on Fashion-MNIST, one or two seconds of training per shard."""

from typing import Any

from vcdl.models.ending import images, output_layer


def small_cnn(input_shape: tuple[int, ...], outputs: int, task: str) -> Any:
    """Build two convolutions of 3 × 3 (16, 32 filters) with pooling, and a dense layer of 64. Raises ModelError."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = images(inputs, "small_cnn")
    for number, filters in enumerate((16, 32), start=1):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"conv_{number}")(x)
        # With `same`, pictures of a single row or column can be pooled, too.
        x = layers.MaxPooling2D(2, padding="same", name=f"pool_{number}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(64, activation="relu", name="dense")(x)
    return keras.Model(inputs, output_layer(outputs, task, "glorot_uniform")(x), name="small_cnn")
