"""Small data sets that are made, not downloaded: each from its formula and one seed, the same on every machine."""

import subprocess
from collections.abc import Callable, Mapping

import numpy as np

from vcdl.data.rows import Array
from vcdl.errors import DataError

_TRAIN, _TEST = 2_400, 1_000
_LONGER = {"characters": 4_800, "garments": 6_000}
"""Samples to train on of sets that need more."""
_FREQUENT = 100
"""A character that is rarer becomes a space."""
_SEED = 15
_Samples = tuple[Array, Array]


def gratings(rng: np.random.Generator, count: int) -> _Samples:
    """Images of 12 × 12 pixels: stripes of one of six directions at any phase, in noise."""
    y = rng.integers(0, 6, count)
    angle, phase = y * np.pi / 6, rng.uniform(0, 2 * np.pi, count)
    place = np.arange(12)
    along = np.cos(angle)[:, None, None] * place[None, :, None] + np.sin(angle)[:, None, None] * place[None, None, :]
    x = np.sin(1.2 * along + phase[:, None, None]) + rng.normal(0, 1.6, (count, 12, 12))
    return x[..., None].astype(np.float32), y


def topics(rng: np.random.Generator, count: int) -> _Samples:
    """Texts of 30 words out of 200: each class prefers words of its own, and half of the words are anybody's."""
    classes, words = 6, 200
    own = np.random.default_rng(_SEED).dirichlet(np.full(words, 0.1), classes)
    chances = np.cumsum(0.3 * own + 0.7 / words, axis=1)
    y = rng.integers(0, classes, count)
    x = np.array([np.searchsorted(chances[label], rng.random(30) * chances[label, -1]) for label in y])
    return x.astype(np.uint8), y


def table(rng: np.random.Generator, count: int) -> _Samples:
    """Tables of 20 features of very different size: four classes in three clumps each, and some wrong labels."""
    fixed = np.random.default_rng(_SEED)
    classes, clumps, features = 4, 3, 20
    centres = fixed.normal(0, 1.1, (classes, clumps, features))
    mixing, size = fixed.normal(0, 1, (features, features)) / np.sqrt(features), 10.0 ** fixed.uniform(-2, 3, features)
    y = rng.integers(0, classes, count)
    x = (centres[y, rng.integers(0, clumps, count)] + rng.normal(0, 1, (count, features))) @ mixing * size
    wrong = rng.random(count) < 0.05
    return x.astype(np.float32), np.where(wrong, rng.integers(0, classes, count), y)


def waves(rng: np.random.Generator, count: int) -> _Samples:
    """Series of 48 steps: a sine, a square, a saw tooth, a chirp or a pulse, of any phase and speed, in noise."""
    y = rng.integers(0, 5, count)
    speed, phase = rng.uniform(2, 4, (count, 1)), rng.uniform(0, 1, (count, 1))
    turns = speed * np.linspace(0, 1, 48)[None] + phase
    within = turns % 1
    shapes = np.stack(
        [
            np.sin(2 * np.pi * turns),
            np.where(within < 0.5, 1.0, -1.0),
            2 * within - 1,
            np.sin(2 * np.pi * turns**1.6),
            np.where(within < 0.2, 1.5, -0.4),
        ]
    )
    x = shapes[y, np.arange(count)] + rng.normal(0, 0.6, (count, 48))
    return x[..., None].astype(np.float32), y


def phrases(rng: np.random.Generator, count: int) -> _Samples:
    """Texts of 16 words out of 1000, few of them frequent: each class has six phrases of two words, and a text two."""
    classes, own, words, length = 5, 6, 1000, 16
    pairs = np.random.default_rng(_SEED).choice(words, (classes, own, 2), replace=False)
    frequency = 1.0 / np.arange(1, words + 1)
    y = rng.integers(0, classes, count)
    x = rng.choice(words, (count, length), p=frequency / frequency.sum())
    for begin in (0, length // 2):
        at, phrase = rng.integers(begin, begin + length // 2 - 1, count), rng.integers(0, own, count)
        for place in range(2):
            x[np.arange(count), at + place] = pairs[y, phrase, place]
    return x.astype(np.int16), y


def pulses(rng: np.random.Generator, count: int) -> _Samples:
    """Series of 20 steps in three channels, two of which have a pulse: the class says which two, and in which order."""
    orders = np.array([(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
    y = rng.integers(0, len(orders), count)
    x = rng.normal(0, 0.5, (count, 20, 3))
    for place in range(2):
        at, channel = rng.integers(10 * place, 10 * place + 9, count), orders[y, place]
        for step in range(2):
            x[np.arange(count), at + step, channel] += 1.5
    return x.astype(np.float32), y


def blots(rng: np.random.Generator, count: int) -> _Samples:
    """Images of 24 × 24 pixels with a disc and a square in noise, one over the other: the class of each pixel."""
    rows, columns = np.mgrid[:24, :24]
    y = np.zeros((count, 24, 24), np.int32)
    for image in y:
        for kind in rng.permutation(2):
            (row, column), size = rng.uniform(4, 20, 2), rng.uniform(3, 6)
            far = np.hypot(rows - row, columns - column) if kind else np.maximum(abs(rows - row), abs(columns - column))
            image[far < size] = kind + 1
    x = np.array([0.0, 0.6, 1.0])[y] + rng.normal(0, 0.5, y.shape)
    return x[..., None].astype(np.float32), y


def fields(rng: np.random.Generator, count: int) -> _Samples:
    """Images of 24 × 24 pixels, cut by a line into two fields of stripes in noise: the direction at each pixel."""
    rows, columns = np.mgrid[:24, :24]
    y = np.zeros((count, 24, 24), np.int32)
    x = rng.normal(0, 0.6, y.shape)
    for image, stripes in zip(y, x, strict=True):
        turn, (first, second) = rng.uniform(0, 2 * np.pi), rng.choice(4, 2, replace=False)
        beyond = (rows - 11.5) * np.cos(turn) + (columns - 11.5) * np.sin(turn) > rng.uniform(-6, 6)
        image[:] = np.where(beyond, first, second)
        along = np.cos(image * np.pi / 4) * rows + np.sin(image * np.pi / 4) * columns
        stripes += np.sin(1.4 * along + rng.uniform(0, 2 * np.pi))
    return x[..., None].astype(np.float32), y


def episodes(rng: np.random.Generator, count: int) -> _Samples:
    """Series of 60 steps in three or four episodes, each still, rising, falling or swinging, in noise: the kind at each
    step.
    """
    length, steps = 60, np.arange(60)
    y = np.zeros((count, length), np.int32)
    x = rng.normal(0, 0.3, y.shape)
    for kinds, series in zip(y, x, strict=True):
        ends = np.sort(rng.choice(np.arange(10, 51, 5), rng.integers(2, 4), replace=False))
        kind = rng.integers(0, 4, len(ends) + 1)
        kinds[:] = kind[np.searchsorted(ends, steps, side="right")]
        rises = np.select([kinds == 1, kinds == 2], [0.15, -0.15], 0.0)
        series += np.cumsum(rises) + (kinds == 3) * np.sin(1.3 * steps + rng.uniform(0, 6))
    return x[..., None].astype(np.float32), y


def tilted(rng: np.random.Generator, count: int) -> _Samples:
    """The stripes of `gratings` in three classes: flat, steep, between."""
    x, y = gratings(rng, count)
    return x, np.array([0, 1, 2, 2, 2, 1])[y]


def characters(rng: np.random.Generator, count: int) -> _Samples:
    """Pieces of 32 characters of the King James Bible, and for each the character that follows.

    The text is that of Debian's package bible-kjv, and no longer under copyright. Raises DataError.
    """
    try:
        text = subprocess.run(["bible", "gen1:1-ex40:38"], capture_output=True, check=True).stdout
    except OSError as error:
        raise DataError("the characters come from Debian's package bible-kjv: apt-get install bible-kjv") from error
    found, places, counts = np.unique(np.frombuffer(text, np.uint8), return_inverse=True, return_counts=True)
    codes = np.unique(np.where(counts >= _FREQUENT, found, ord(" "))[places], return_inverse=True)[1]
    half = len(codes) * 3 // 4
    begin, end = (0, half) if count > _TEST else (half, len(codes))
    at = rng.integers(begin, end - 33, count)[:, None] + np.arange(33)
    return codes[at[:, :-1]].astype(np.uint8), codes[at[:, 1:]].astype(np.int32)


def garments(rng: np.random.Generator, count: int) -> _Samples:
    """A part of Fashion-MNIST, drawn from its own training or test images. Raises DataError."""
    from vcdl.data.fashion_mnist import load

    part = load(None).parts()["train" if count > _TEST else "test"]
    chosen = rng.choice(len(part.y), count, replace=False)
    return np.asarray(part.x)[chosen], part.y[chosen]


def dropped(rng: np.random.Generator, count: int) -> _Samples:
    """The texts of `topics`, for a model with dropout."""
    return topics(rng, count)


FORMULAS: Mapping[str, Callable[[np.random.Generator, int], _Samples]] = {
    "gratings": gratings,
    "topics": topics,
    "dropped": dropped,
    "table": table,
    "waves": waves,
    "phrases": phrases,
    "pulses": pulses,
    "blots": blots,
    "fields": fields,
    "episodes": episodes,
    "tilted": tilted,
    "characters": characters,
    "garments": garments,
}


def bundled(name: str) -> _Samples:
    """A data set of scikit-learn, whole: one that comes with it, or one that it makes."""
    from sklearn import datasets

    x, y = {
        "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
        "clusters": lambda: datasets.make_classification(
            3000, 20, n_informative=8, n_classes=4, flip_y=0.03, random_state=_SEED
        ),
        "friedman": lambda: datasets.make_friedman1(3000, noise=1.0, random_state=_SEED),
        "labels": lambda: datasets.make_multilabel_classification(2000, random_state=_SEED),
    }[name]()
    return x.astype(np.float32), y.astype(np.float32) if y.dtype.kind == "f" else y


def arrays(name: str) -> dict[str, Array]:
    """The arrays of a data set's .npz file. The test set of one that is made is drawn after its training set; of one
    that comes with scikit-learn it is a fifth.
    """
    rng = np.random.default_rng(_SEED)
    if name in FORMULAS:
        counts = _LONGER.get(name, _TRAIN), _TEST
        (x_train, y_train), (x_test, y_test) = (FORMULAS[name](rng, count) for count in counts)
    else:
        x, y = bundled(name)
        order, tested = rng.permutation(len(x)), len(x) // 5
        x_test, x_train, y_test, y_train = x[order[:tested]], x[order[tested:]], y[order[:tested]], y[order[tested:]]
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
