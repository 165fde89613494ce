"""Write data.npz: a table of measurements and three kinds of samples. Put your own arrays in their place."""

import numpy as np

SAMPLES, COLUMNS = 3000, 12
KINDS = np.array(["calm", "mixed", "wild"])

random = np.random.default_rng(1)
x = random.normal(size=(SAMPLES, COLUMNS)) * np.arange(1, COLUMNS + 1)  # columns of different sizes
unit = x / np.arange(1, COLUMNS + 1)
score = unit[:, 0] + unit[:, 1] * unit[:, 2] + 0.1 * random.normal(size=SAMPLES)
y = KINDS[np.digitize(score, [-0.5, 0.7])]

np.savez_compressed("data.npz", x_train=x[:2400], y_train=y[:2400], x_test=x[2400:], y_test=y[2400:])
