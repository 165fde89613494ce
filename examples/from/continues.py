"""The model of job.yaml: characters become vectors, and a recurrent net says what comes next at each step."""

import keras


def build(input_shape: tuple[int, ...], outputs: int) -> keras.Model:
    """A model that continues a text of so many different characters."""
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="int32"),
            keras.layers.Embedding(outputs, 32),
            keras.layers.GRU(128, return_sequences=True),
            keras.layers.Dense(outputs, activation="softmax"),
        ]
    )
