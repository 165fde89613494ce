"""The model of job.yaml: what pretrained.keras has learned, with a new head."""

from pathlib import Path

import keras


def build() -> keras.Model:
    """The pretrained layers with their weights, and an end for three classes."""
    pretrained = keras.models.load_model(Path(__file__).with_name("pretrained.keras"))
    outputs = keras.layers.Dense(3, activation="softmax", name="new_head")(pretrained.get_layer("features").output)
    return keras.Model(pretrained.inputs[0], outputs)
