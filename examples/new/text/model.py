"""The model of job.yaml: tokens become vectors, and their mean is judged."""

import keras


def build() -> keras.Model:
    """A classifier of sentences of 30 tokens out of 500."""
    return keras.Sequential(
        [
            keras.Input((30,), dtype="int32"),
            keras.layers.Embedding(500, 16, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
