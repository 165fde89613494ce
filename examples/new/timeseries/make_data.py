"""Write data.npz: windows of 48 hours of a daily rhythm, and the hour that follows. Put your own in their place."""

import numpy as np

HOURS, WINDOW = 3000, 48
random = np.random.default_rng(1)

hour = np.arange(HOURS)
series = np.sin(2 * np.pi * hour / 24) + 0.5 * np.sin(2 * np.pi * hour / 168) + 0.1 * random.normal(size=HOURS)
windows = np.lib.stride_tricks.sliding_window_view(series, WINDOW + 1)
x, y = windows[:, :WINDOW, None], windows[:, WINDOW:]

# The future is the test: no window of it overlaps one that is trained on.
np.savez_compressed("data.npz", x_train=x[:2400], y_train=y[:2400], x_test=x[2450:], y_test=y[2450:])
