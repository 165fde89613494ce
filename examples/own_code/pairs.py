"""Contrastive learning of pairs: a twin encoder, the distance of its two outputs, and a loss that pulls or pushes."""

import keras
from keras import ops


class Distance(keras.layers.Layer):
    """The Euclidean distance of two embeddings."""

    def call(self, first, second):
        return ops.sqrt(ops.sum(ops.square(first - second), axis=-1, keepdims=True) + 1e-9)


def contrastive(y_true, y_pred, margin=1.0):
    """Hadsell, Chopra, LeCun 2006: alike (1) near, unlike (0) at least the margin apart."""
    y_true = ops.cast(y_true, y_pred.dtype)
    return ops.mean(y_true * ops.square(y_pred) + (1 - y_true) * ops.square(ops.maximum(margin - y_pred, 0.0)), axis=-1)


def told_apart(y_true, y_pred):
    """Pairs on the right side of half the margin."""
    return ops.cast(ops.equal(y_pred < 0.5, ops.cast(y_true, y_pred.dtype) > 0.5), "float32")


def build(input_shape, outputs):
    encoder = keras.Sequential(
        [
            keras.Input(input_shape["first"]),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(16),
        ],
        name="encoder",
    )
    first, second = (keras.Input(input_shape[name], name=name) for name in ("first", "second"))
    return keras.Model({"first": first, "second": second}, Distance(name="distance")(encoder(first), encoder(second)))


def write_pairs(path="pairs.npz", count=3000):
    """Pairs of digits, half of them alike, as the arrays of a job with two inputs."""
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    draw = np.random.default_rng(1)
    first, second = draw.integers(len(x), size=count), draw.integers(len(x), size=count)
    alike = np.array([draw.choice(np.flatnonzero(y == y[one])) for one in first])
    second = np.where(np.arange(count) % 2, second, alike)
    labels = (y[first] == y[second]).astype("float32")
    np.savez(path, x_train_first=x[first], x_train_second=x[second], y_train=labels)


if __name__ == "__main__":
    write_pairs()
