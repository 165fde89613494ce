"""Problems of a data scientist's own, by `vcdl.train` with its defaults and by plain `model.fit`, side by side.

    python -m benchmarks.bench_problems [--only TEXT] [--epochs 20] [--seeds 1,2,3] [--json]

Both train the same model from the same weights on the same samples, with as many passes and the same batch size.
`fit` has Keras' usual rate for Adam, 0.001, and vcdl its default course. The measure is that of the test samples, which
neither sees before the end. Memory is the most that this process and all below it have at once; this process has Keras
in both. All data are generated, or come with scikit-learn.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peak_memory import PeakMemory

Array = npt.NDArray[Any]
_SAMPLED_EVERY_S = 1.0
"""Seconds between two looks at the memory, because each takes some 20 ms of processor, which counts as the run's."""


@dataclass(frozen=True)
class Problem:
    """A model, and samples to train and to test it."""

    name: str
    build: Callable[[], Any]
    """The compiled model."""
    samples: Callable[[np.random.Generator], tuple[Array, Array]]
    measure: str = "accuracy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="problems whose name has this text")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not options.json:
        print(
            f"{'problem':24} {'measure':10} {'fit':>8} {'vcdl':>8} {'fit s':>7} {'vcdl s':>7} "
            f"{'fit cpu':>8} {'vcdl cpu':>8} {'fit MB':>7} {'vcdl MB':>7} {'up KiB':>8}"
        )
    for problem in PROBLEMS:
        if options.only not in problem.name:
            continue
        found = [compared(problem, options.epochs, int(seed)) for seed in options.seeds.split(",")]
        row = {key: statistics.median(one[key] for one in found) for key in found[0]}
        if options.json:
            print(json.dumps({"problem": problem.name, "measure": problem.measure, **row}), flush=True)
            continue
        print(
            f"{problem.name:24} {problem.measure:10} {row['fit']:8.3f} {row['vcdl']:8.3f} {row['fit_s']:7.1f} "
            f"{row['vcdl_s']:7.1f} {row['fit_cpu_s']:8.1f} {row['vcdl_cpu_s']:8.1f} "
            f"{row['fit_bytes'] / 1e6:7.0f} {row['vcdl_bytes'] / 1e6:7.0f} {row['up_bytes'] / 1024:8.1f}",
            flush=True,
        )


def compared(problem: Problem, epochs: int, seed: int) -> dict[str, float]:
    """Train both; `up_bytes` are those of one subtask."""
    import keras

    import vcdl

    x, y = problem.samples(np.random.default_rng(seed))
    keras.utils.set_random_seed(seed)
    model = problem.build()
    test = len(x) // 5
    begun_s, begun_cpu_s = time.perf_counter(), _processor_s()
    with tempfile.TemporaryDirectory() as folder, PeakMemory(os.getpid(), _SAMPLED_EVERY_S) as vcdl_memory:
        run = vcdl.train(
            model,
            x[test:],
            y[test:],
            test_data=(x[:test], y[:test]),
            epochs=epochs,
            seed=seed,
            out=Path(folder) / "run",
            show=False,
        ).wait(show=False)
        vcdl_s, vcdl_cpu_s = time.perf_counter() - begun_s, _processor_s() - begun_cpu_s
        summary = run.summary
        trained = run.model()
        batch_size = vcdl.Job.load(run.folder / "job.yaml").settings.training.batch_size
    begun_s, begun_cpu_s = time.perf_counter(), _processor_s()
    with PeakMemory(os.getpid(), _SAMPLED_EVERY_S) as fit_memory:
        model.fit(x[test:], y[test:], batch_size=batch_size, epochs=epochs, verbose=0)
    fit_s, fit_cpu_s = time.perf_counter() - begun_s, _processor_s() - begun_cpu_s
    measured = [m.evaluate(x[:test], y[:test], verbose=0, return_dict=True) for m in (model, trained)]
    return {
        "fit": measured[0][problem.measure],
        "vcdl": measured[1][problem.measure],
        "fit_s": fit_s,
        "vcdl_s": vcdl_s,
        "fit_cpu_s": fit_cpu_s,
        "vcdl_cpu_s": vcdl_cpu_s,
        "fit_bytes": fit_memory.peak_bytes,
        "vcdl_bytes": vcdl_memory.peak_bytes,
        "up_bytes": summary["bytes"]["up"] / max(1, summary["updates_applied"]),
    }


def _processor_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _layers(*layers: Callable[[], Any], shape: tuple[int, ...], dtype: str = "float32") -> Any:
    import keras

    return keras.Sequential([keras.Input(shape, dtype=dtype), *(layer() for layer in layers)])


def _classifier(*layers: Callable[[], Any], shape: tuple[int, ...], classes: int, dtype: str = "float32") -> Any:
    import keras

    model = _layers(*layers, lambda: keras.layers.Dense(classes, activation="softmax"), shape=shape, dtype=dtype)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _bundled(name: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """A table of scikit-learn, standardised and in another order."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = rng.permutation(len(x))
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)[order], y[order]


def _tables(inputs: int, classes: int) -> Any:
    from keras import layers

    return _classifier(lambda: layers.Dense(32, activation="relu"), shape=(inputs,), classes=classes)


def _digits(rng: np.random.Generator) -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    return (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)[order], y[order]


def _image_model(*, normalised: bool) -> Any:
    from keras import layers

    norm = [layers.BatchNormalization] if normalised else []
    return _classifier(
        lambda: layers.Conv2D(16, 3, activation="relu"),
        *norm,
        layers.Flatten,
        lambda: layers.Dense(32, activation="relu"),
        shape=(8, 8, 1),
        classes=10,
    )


def _topics(rng: np.random.Generator) -> tuple[Array, Array]:
    """Texts of 20 tokens of 500: five of a text's tokens are its topic's."""
    y = rng.integers(4, size=3000)
    x = rng.integers(500, size=(3000, 20))
    for place in range(5):
        x[:, place] = y * 100 + rng.integers(40, size=3000)
    return rng.permuted(x, axis=1).astype(np.int32), y


def _text_model(reader: Callable[[], Any]) -> Any:
    from keras import layers

    return _classifier(lambda: layers.Embedding(500, 16), reader, shape=(20,), classes=4, dtype="int32")


def _transformer() -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((20,), dtype="int32")
    x = layers.Embedding(500, 16)(inputs)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 8)(x, x)]))
    outputs = layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, outputs, name="transformer")
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _waves(rng: np.random.Generator) -> tuple[Array, Array]:
    """Noisy waves of 40 steps, of three frequencies."""
    y = rng.integers(3, size=2000)
    phase, steps = rng.uniform(0, 2 * np.pi, (2000, 1)), np.arange(40)
    x = np.sin(phase + steps * (0.2 + 0.1 * y[:, None])) + rng.normal(0, 0.7, (2000, 40))
    return x[..., None].astype(np.float32), y


def _wave_model(reader: str) -> Any:
    from keras import layers

    return _classifier(lambda: getattr(layers, reader)(24), shape=(40, 1), classes=3)


def _regression(rng: np.random.Generator) -> tuple[Array, Array]:
    x, y = _bundled("diabetes", rng)
    return x, ((y - y.mean()) / y.std()).astype(np.float32)


def _prices(rng: np.random.Generator) -> tuple[Array, Array]:
    """The same targets in the scale of prices."""
    x, y = _regression(rng)
    return x, (3e5 + 1e5 * y).astype(np.float32)


def _compiled(loss: str, metrics: Sequence[str], *layers: Callable[[], Any], shape: tuple[int, ...]) -> Any:
    model = _layers(*layers, shape=shape)
    model.compile(optimizer="adam", loss=loss, metrics=list(metrics))
    return model


def _numbers() -> Any:
    from keras import layers

    dense = (lambda: layers.Dense(32, activation="relu"), lambda: layers.Dense(1))
    return _compiled("mean_squared_error", ["mean_absolute_error"], *dense, shape=(10,))


def _yes_or_no() -> Any:
    from keras import layers

    dense = (lambda: layers.Dense(16, activation="relu"), lambda: layers.Dense(1, activation="sigmoid"))
    return _compiled("binary_crossentropy", ["accuracy"], *dense, shape=(30,))


def _pooling() -> Any:
    from keras import layers

    return layers.GlobalAveragePooling1D()


def _gru() -> Any:
    from keras import layers

    return layers.GRU(24)


def _several(rng: np.random.Generator) -> tuple[Array, Array]:
    """Twelve numbers, and four questions about pairs of them."""
    x = rng.normal(size=(2000, 12)).astype(np.float32)
    return x, (x[:, :4] + x[:, 4:8] * x[:, 8:] > 0).astype(np.int32)


def _several_model() -> Any:
    from keras import layers

    dense = (lambda: layers.Dense(64, activation="relu"), lambda: layers.Dense(4, activation="sigmoid"))
    return _compiled("binary_crossentropy", ["binary_accuracy"], *dense, shape=(12,))


def _tags(rng: np.random.Generator) -> tuple[Array, Array]:
    """Sequences of 15 tokens of 12; a tag follows from a token and the one before it."""
    x = rng.integers(12, size=(2000, 15)).astype(np.int32)
    return x, (x + np.roll(x, 1, axis=1)) % 3


def _tagger() -> Any:
    from keras import layers

    return _classifier(
        lambda: layers.Embedding(12, 16),
        lambda: layers.Bidirectional(layers.GRU(32, return_sequences=True)),
        shape=(15,),
        classes=3,
        dtype="int32",
    )


def _discs(rng: np.random.Generator) -> tuple[Array, Array]:
    """Noisy pictures of 16 × 16 with a disc; a pixel's class is whether it lies in it."""
    centre, radius = rng.uniform(4, 12, (600, 2)), rng.uniform(2, 5, 600)
    rows, columns = np.mgrid[:16, :16]
    away = (rows - centre[:, 0, None, None]) ** 2 + (columns - centre[:, 1, None, None]) ** 2
    y = (away < radius[:, None, None] ** 2).astype(np.int32)
    return (y + rng.normal(0, 1, y.shape))[..., None].astype(np.float32), y


def _segmenter() -> Any:
    from keras import layers

    return _classifier(
        lambda: layers.Conv2D(16, 5, padding="same", activation="relu"),
        lambda: layers.Conv2D(16, 5, padding="same", activation="relu"),
        shape=(16, 16, 1),
        classes=2,
    )


def _pictures(rng: np.random.Generator) -> tuple[Array, Array]:
    x, _ = _digits(rng)
    x = x.reshape(len(x), -1)
    return x, x


def _autoencoder() -> Any:
    from keras import layers

    dense = (lambda: layers.Dense(16, activation="relu"), lambda: layers.Dense(64))
    return _compiled("mean_squared_error", ["mean_absolute_error"], *dense, shape=(64,))


PROBLEMS = (
    Problem("wine", lambda: _tables(13, 3), lambda rng: _bundled("wine", rng)),
    Problem("iris", lambda: _tables(4, 3), lambda rng: _bundled("iris", rng)),
    Problem("breast cancer, one output", _yes_or_no, lambda rng: _bundled("breast_cancer", rng)),
    Problem("diabetes, regression", _numbers, _regression, measure="mean_absolute_error"),
    Problem("diabetes, prices", _numbers, _prices, measure="mean_absolute_error"),
    Problem("digits, images", lambda: _image_model(normalised=False), _digits),
    Problem("digits, batch norm", lambda: _image_model(normalised=True), _digits),
    Problem("topics, mean of tokens", lambda: _text_model(_pooling), _topics),
    Problem("topics, GRU", lambda: _text_model(_gru), _topics),
    Problem("topics, Transformer", _transformer, _topics),
    Problem("waves, LSTM", lambda: _wave_model("LSTM"), _waves),
    Problem(
        "several labels",
        _several_model,
        _several,
        measure="binary_accuracy",
    ),
    Problem("a tag for each token", _tagger, _tags),
    Problem("a class for each pixel", _segmenter, _discs),
    Problem("autoencoder", _autoencoder, _pictures, measure="mean_absolute_error"),
    Problem("waves, GRU", lambda: _wave_model("GRU"), _waves),
)


if __name__ == "__main__":
    main()
