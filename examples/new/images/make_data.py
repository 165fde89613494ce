"""Write data.npz: small grey pictures of four shapes. Put your own arrays in their place."""

import numpy as np

SAMPLES, SIZE = 2400, 20
random = np.random.default_rng(1)


def picture(shape: int) -> np.ndarray:
    """One shape, anywhere, of any size, with noise."""
    radius = random.uniform(4, 8)
    row, column = random.uniform(radius, SIZE - radius, size=2)
    rows, columns = np.abs(np.arange(SIZE) - row)[:, None], np.abs(np.arange(SIZE) - column)[None, :]
    filled = (
        np.hypot(rows, columns) < radius,  # a disc
        np.maximum(rows, columns) < 0.85 * radius,  # a square
        (np.minimum(rows, columns) < 1.5) & (np.maximum(rows, columns) < radius),  # a cross
        np.abs(np.hypot(rows, columns) - 0.8 * radius) < 1,  # a ring
    )[shape]
    return 200 * filled + random.integers(0, 56, size=(SIZE, SIZE))


y = random.integers(0, 4, size=SAMPLES)
x = np.stack([picture(shape) for shape in y]).astype(np.uint8)[..., None]

np.savez_compressed("data.npz", x_train=x[:2000], y_train=y[:2000], x_test=x[2000:], y_test=y[2000:])
