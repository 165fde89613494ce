"""The models of the small problems, for `model > python`. Layers are named, so that each run has the same JSON."""

from typing import Any

import numpy as np


def normalised_cnn(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Two convolutions for images, each with batch normalisation."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = inputs
    for number, filters in enumerate((8, 16), start=1):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv_{number}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"norm_{number}")(x)
        x = layers.Activation("relu", name=f"relu_{number}")(x)
        x = layers.MaxPooling2D(2, name=f"pool_{number}")(x)
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    return _model(inputs, x, outputs, "normalised_cnn")


def plain_cnn(input_shape: tuple[int, ...], outputs: int) -> Any:
    """One convolution for images, and a dense layer."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv")(inputs)
    x = layers.MaxPooling2D(2, name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(32, activation="relu", name="dense")(x)
    return _model(inputs, x, outputs, "plain_cnn")


def wide_dense(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Two wide dense layers for images."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Flatten(name="flatten")(inputs)
    x = layers.Dense(256, activation="relu", name="dense_1")(x)
    x = layers.Dense(128, activation="relu", name="dense_2")(x)
    return _model(inputs, x, outputs, "wide_dense")


def wide_cnn(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Two convolutions for images, and a wide dense layer."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="conv_1")(inputs)
    x = layers.MaxPooling2D(2, name="pool_1")(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu", name="conv_2")(x)
    x = layers.MaxPooling2D(2, name="pool_2")(x)
    x = layers.Dense(256, activation="relu", name="dense")(layers.Flatten(name="flatten")(x))
    return _model(inputs, x, outputs, "wide_cnn")


def words(input_shape: tuple[int, ...], outputs: int) -> Any:
    """The mean of a text's word vectors, and a dense layer."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Embedding(200, 16, name="embedding")(inputs)
    x = layers.GlobalAveragePooling1D(name="mean")(x)
    x = layers.Dense(32, activation="relu", name="dense")(x)
    return _model(inputs, x, outputs, "words")


def dropped_words(input_shape: tuple[int, ...], outputs: int) -> Any:
    """The mean of a text's word vectors, dropout and a dense layer."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Embedding(200, 16, name="embedding")(inputs)
    x = layers.Dropout(0.2, name="dropout")(layers.GlobalAveragePooling1D(name="mean")(x))
    x = layers.Dense(32, activation="relu", name="dense")(x)
    return _model(inputs, x, outputs, "dropped_words")


def dense(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Two dense layers for tables."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Dense(48, activation="relu", name="dense_1")(inputs)
    x = layers.Dense(24, activation="relu", name="dense_2")(x)
    return _model(inputs, x, outputs, "dense")


def series(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Two convolutions along time."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Conv1D(12, 7, padding="same", activation="relu", name="conv_1")(inputs)
    x = layers.MaxPooling1D(2, name="pool")(x)
    x = layers.Conv1D(24, 5, padding="same", activation="relu", name="conv_2")(x)
    x = layers.GlobalMaxPooling1D(name="most")(x)
    return _model(inputs, x, outputs, "series")


def phrase_cnn(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Word vectors and a convolution over pairs of words."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Embedding(1000, 16, name="embedding")(inputs)
    x = layers.Conv1D(32, 2, activation="relu", name="conv")(x)
    x = layers.GlobalMaxPooling1D(name="most")(x)
    return _model(inputs, x, outputs, "phrase_cnn")


def recurrent(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A layer that reads a series step by step."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.GRU(16, name="gru")(inputs)
    return _model(inputs, x, outputs, "recurrent")


def attention(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A block of a Transformer over words and their places."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    return _transformer(inputs, layers.Embedding(1000, 24, name="embedding")(inputs), outputs, "attention")


def attention_to_rows(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A block of a Transformer over the rows of a picture, or the steps of a series by fours."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    rows = input_shape[0] if len(input_shape) > 2 else input_shape[0] // 4
    x = layers.Dense(24, name="rows")(layers.Reshape((rows, -1), name="cut")(inputs))
    return _transformer(inputs, x, outputs, "attention_to_rows")


def _transformer(inputs: Any, x: Any, outputs: int, name: str) -> Any:
    """A block of a Transformer over vectors, to which it adds their places."""
    from keras import layers, ops

    ones = ops.ones_like(x[:, :, 0], dtype="int32")
    x = layers.Add(name="both")([x, layers.Embedding(x.shape[1], 24, name="places")(ops.cumsum(ones, axis=1) - 1)])
    x = layers.LayerNormalization(name="norm_1")(x)
    x = layers.Add(name="add_1")([x, layers.MultiHeadAttention(3, 8, name="attention")(x, x)])
    y = layers.Dense(48, activation="relu", name="dense_1")(layers.LayerNormalization(name="norm_2")(x))
    x = layers.Add(name="add_2")([x, layers.Dense(24, name="dense_2")(y)])
    return _model(inputs, layers.GlobalAveragePooling1D(name="mean")(x), outputs, name)


def characters(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A small Transformer that names the next character at each place, from those up to it."""
    import keras
    from keras import layers, ops

    inputs = keras.Input(input_shape, name="input")
    places = layers.Embedding(input_shape[0], 32, name="places")(ops.cumsum(ops.ones_like(inputs), axis=1) - 1)
    x = layers.Add(name="both")([layers.Embedding(outputs, 32, name="embedding")(inputs), places])
    for block in (1, 2):
        y = layers.LayerNormalization(name=f"norm_{block}a")(x)
        y = layers.MultiHeadAttention(2, 16, name=f"attention_{block}")(y, y, use_causal_mask=True)
        x = layers.Add(name=f"add_{block}a")([x, y])
        y = layers.LayerNormalization(name=f"norm_{block}b")(x)
        y = layers.Dense(96, activation="gelu", name=f"dense_{block}a")(y)
        x = layers.Add(name=f"add_{block}b")([x, layers.Dense(32, name=f"dense_{block}b")(y)])
    return _model(inputs, layers.LayerNormalization(name="norm")(x), outputs, "characters")


def read_characters(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A GRU that names the next character at each place."""
    import keras
    from keras import layers

    inputs = keras.Input(input_shape, name="input")
    x = layers.Embedding(outputs, 32, name="embedding")(inputs)
    return _model(inputs, layers.GRU(96, return_sequences=True, name="gru")(x), outputs, "read_characters")


def tagger(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A class for each step of a series, by convolutions around it."""
    import keras
    from keras import layers

    x = inputs = keras.Input(input_shape, name="input")
    for number, dilation in enumerate((1, 2, 4), start=1):
        x = layers.Conv1D(16, 5, padding="same", dilation_rate=dilation, activation="relu", name=f"conv_{number}")(x)
    return _model(inputs, x, outputs, "tagger")


def small_unet(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A U-Net of three sizes: a class for each pixel."""
    import keras
    from keras import layers

    def convolved(x: Any, filters: int, name: str) -> Any:
        return layers.Conv2D(filters, 3, padding="same", activation="relu", name=name)(x)

    inputs = keras.Input(input_shape, name="input")
    fine = convolved(inputs, 8, "down_1")
    middle = convolved(layers.MaxPooling2D(2, name="pool_1")(fine), 16, "down_2")
    x = convolved(layers.MaxPooling2D(2, name="pool_2")(middle), 32, "down_3")
    for name, filters, beside in (("up_2", 16, middle), ("up_1", 8, fine)):
        x = layers.Conv2DTranspose(filters, 2, strides=2, name=name)(x)
        x = convolved(layers.Concatenate(name=f"{name}_both")([x, beside]), filters, f"{name}_conv")
    return _model(inputs, x, outputs, "small_unet")


def augmented_resnet(input_shape: tuple[int, ...], outputs: int) -> Any:
    """The smallest ResNet v2, which sees pictures moved and mirrored."""
    import keras
    from keras import layers

    from vcdl.models.resnet_v2 import resnet_v2

    inputs = keras.Input(input_shape, name="input")
    x = layers.RandomTranslation(0.08, 0.08, fill_mode="constant", name="moved")(inputs)
    x = layers.RandomFlip("horizontal", name="mirrored")(x)
    return keras.Model(inputs, resnet_v2(input_shape, outputs, "classification", depth=11)(x), name="augmented_resnet")


def pretrained(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A net that has learnt six directions of stripes, with a new output."""
    import keras

    from benchmarks.experiments.problem_data import gratings

    keras.utils.set_random_seed(1)
    body = plain_cnn(input_shape, 6)
    x, y = gratings(np.random.default_rng(1), 1_500)
    body.compile("adam", "sparse_categorical_crossentropy")
    body.fit(x, y, epochs=4, verbose=0)
    keras.utils.set_random_seed(2)
    return _model(body.input, body.get_layer("dense").output, outputs, "pretrained")


def _model(inputs: Any, x: Any, outputs: int, name: str) -> Any:
    import keras
    from keras import layers

    return keras.Model(inputs, layers.Dense(outputs, activation="softmax", name="output")(x), name=name)
