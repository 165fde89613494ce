"""The model of job.yaml: bytes become vectors, and a convolution finds what tells the labels apart."""

import keras


def build(input_shape: tuple[int, ...], outputs: int) -> keras.Model:
    """A classifier of lines; each byte is one of 256, plus 0 behind the end."""
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="int32"),
            keras.layers.Embedding(257, 32),
            keras.layers.Conv1D(64, 5, activation="relu", padding="same"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(outputs, activation="softmax"),
        ]
    )
