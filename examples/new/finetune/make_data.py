"""Write pretrained.keras, a net that has learned four shapes, and data.npz with few pictures of three new ones.

Put a model of yours and your own arrays in their place.
"""

import keras
import numpy as np

SIZE = 20
random = np.random.default_rng(1)


def picture(shape: int) -> np.ndarray:
    """One shape, anywhere, of any size, with noise, as numbers from 0 to 1."""
    radius = random.uniform(4, 8)
    row, column = random.uniform(radius, SIZE - radius, size=2)
    rows, columns = np.arange(SIZE)[:, None] - row, np.arange(SIZE)[None, :] - column
    far, near = np.maximum(abs(rows), abs(columns)), np.minimum(abs(rows), abs(columns))
    filled = (
        np.hypot(rows, columns) < radius,  # a disc
        far < 0.85 * radius,  # a square
        (near < 1.5) & (far < radius),  # a cross
        abs(np.hypot(rows, columns) - 0.8 * radius) < 1,  # a ring
        (abs(rows) + abs(columns)) < radius,  # new: a diamond
        (abs(rows) < 2) & (far < radius),  # new: a bar
        abs(far - 0.8 * radius) < 1,  # new: a frame
    )[shape]
    return (200 * filled + random.integers(0, 56, size=(SIZE, SIZE))) / 255


def pictures(shapes: np.ndarray) -> np.ndarray:
    """A picture of each shape."""
    return np.stack([picture(shape) for shape in shapes]).astype(np.float32)[..., None]


known = random.integers(0, 4, size=2000)
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.Input((SIZE, SIZE, 1)),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu", name="conv_1"),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu", name="conv_2"),
        keras.layers.Flatten(name="flatten"),
        keras.layers.Dense(64, activation="relu", name="features"),
        keras.layers.Dense(4, activation="softmax", name="head"),
    ],
    name="pretrained",
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(pictures(known), known, epochs=8, verbose=0)
model.save("pretrained.keras")

y = random.integers(0, 3, size=600)
x = pictures(y + 4)
np.savez_compressed("data.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
