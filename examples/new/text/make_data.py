"""Write data.npz: sentences of 30 tokens, friendly or not. Put your own token numbers in their place."""

import numpy as np

SAMPLES, LENGTH, WORDS = 3000, 30, 500
random = np.random.default_rng(1)

# Words 1 to 40 are friendly, 41 to 80 unfriendly, the rest says nothing; 0 fills up short sentences.
y = random.integers(0, 2, size=SAMPLES)
x = random.integers(81, WORDS, size=(SAMPLES, LENGTH))
for sentence, friendly in zip(x, y, strict=True):
    places = random.permutation(LENGTH)
    sentence[places[:4]] = random.integers(1, 41, size=4) + (0 if friendly else 40)
    sentence[places[4:6]] = random.integers(1, 81, size=2)
    sentence[LENGTH - random.integers(0, 8) :] = 0

np.savez_compressed("data.npz", x_train=x[:2500], y_train=y[:2500], x_test=x[2500:], y_test=y[2500:])
