"""Fine-tuning 1 % of a model of 20 million weights: bytes beside those of training all of it, and accuracy beside
`model.fit` with the same frozen layers and passes.

`python benchmarks/bench_fine_tuning.py [--epochs N] [--shards N]` makes two generated problems on the same inputs,
trains a backbone on the first with plain Keras, and fine-tunes the last layers on the second, by `vcdl run` and by
`model.fit`. The bytes of training all layers are those that `vcdl describe` tells. Targets: at most 1.1 % of the bytes
of a subtask's weights, and an accuracy within 0.3 points.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.journal.events import UpdateApplied
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of

_HERE = Path(__file__).parent
_FEATURES, _LATENT, _HIDDEN, _ADAPTER = 784, 16, 4096, 48
_CLASSES = (20, 10)
"""Classes of the backbone's problem, and of the one that it is tuned for."""
_TRAIN, _TEST, _CLUSTERS = 3_000, 4_000, 40
_TRAINED = ["adapter", "head"]


class Problem:
    """Inputs that a random layer makes of points in some clusters, and labels that group the clusters."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._spread = rng.normal(size=(_LATENT, _FEATURES)) / _LATENT**0.5
        self._centres = rng.normal(size=(_CLUSTERS, _LATENT))
        self._classes = [rng.permutation(_CLUSTERS) % classes for classes in _CLASSES]

    def samples(self, number: int, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """x of shape (count, features) and y of one of the two problems."""
        cluster = self._rng.integers(_CLUSTERS, size=count)
        hidden = self._centres[cluster] + self._rng.normal(scale=0.5, size=(count, _LATENT))
        x = np.tanh(hidden @ self._spread) + self._rng.normal(scale=0.2, size=(count, _FEATURES))
        return np.clip(127.5 + 80 * x, 0, 255).astype(np.uint8), self._classes[number][cluster]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--shards", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vcdl-fine-tuning-") as name:
        folder = Path(name)
        _prepare(folder)
        job = _job(folder, "tuned", arguments.shards, arguments.epochs, train=_TRAINED)
        whole = _described(_job(folder, "whole", arguments.shards, 1))
        tuned = _run(job)
        plain = _output([sys.executable, str(_HERE / "plain_keras.py"), str(job)])
        _print(job, tuned, whole, json.loads(plain.splitlines()[-1])["test"])


def _prepare(folder: Path) -> None:
    """Write the second problem's data, and the model with a backbone that has learnt the first."""
    import keras
    from keras import layers

    problem = Problem(np.random.default_rng(17))
    x, y = problem.samples(0, _TRAIN)
    inputs = keras.Input((_FEATURES,), name="input")
    body = layers.Dense(_HIDDEN, activation="relu", name="body_1")(inputs)
    body = layers.Dense(_HIDDEN, activation="relu", name="body_2")(body)
    first = keras.Model(inputs, layers.Dense(_CLASSES[0], activation="softmax")(body))
    first.compile(keras.optimizers.Adam(3e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
    learnt = first.fit(x / np.float32(255), y, batch_size=64, epochs=2, verbose=0).history["accuracy"][-1]
    head = layers.Dense(_ADAPTER, activation="relu", name="adapter")(body)
    model = keras.Model(inputs, layers.Dense(_CLASSES[1], activation="softmax", name="head")(head))
    model.save(folder / "model.keras")
    (x_train, y_train), (x_test, y_test) = problem.samples(1, _TRAIN), problem.samples(1, _TEST)
    np.savez(folder / "data.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    print(f"backbone: {model.count_params():,} weights with the new layers; accuracy {learnt:.4f} on its own problem")


def _job(folder: Path, name: str, shards: int, epochs: int, train: list[str] | None = None) -> Path:
    model: dict[str, Any] = {"keras": "model.keras"} | ({} if train is None else {"train": train})
    job = {
        "name": name,
        "model": model,
        "data": {"npz": "data.npz", "shards": shards, "validation": 500},
        "training": {"batch_size": 32},
        "stop": {"epochs": epochs},
        "validate": {"every": "epoch"},
        "grid": {"workers": 2},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(job))  # which YAML reads
    return path


def _run(job: Path) -> RunFolder:
    folder = job.with_suffix("")
    _output([sys.executable, "-m", "vcdl", "run", str(job), "--out", str(folder)])
    return RunFolder(folder)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _described(job: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(_output([sys.executable, "-m", "vcdl", "describe", str(job), "--json"]))
    return described


def _print(job: Path, tuned: RunFolder, whole: dict[str, Any], plain: float) -> None:
    model = _described(job)["model"]
    trained, weights = model["trainable_parameters"], model["parameters"]
    print(f"trained: {trained:,} of {weights:,} weights ({trained / weights:.2%})")
    ways = {"down": (_params(tuned), whole["downloads"][2]), "up": (_uploads(tuned), whole["uploads"][0])}
    for way, (ours, file) in ways.items():
        theirs = file["size_bytes"]
        print(f"{way:<5}{ours:>12,} bytes of weights a subtask, {theirs:,} when all are trained: {ours / theirs:.2%}")
    print(f"once {tuned.frozen_file.stat().st_size:>12,} bytes to each client (frozen.h5)")
    accuracy = json.loads(tuned.summary_file.read_text())["accuracy"]["test"]
    points = 100 * (accuracy - plain)
    print(f"test accuracy: vcdl {accuracy:.4f}, model.fit {plain:.4f}, difference {points:+.2f} points")


def _params(folder: RunFolder) -> int:
    return folder.snapshot(folder.snapshot_versions()[-1]).stat().st_size


def _uploads(folder: RunFolder) -> int:
    return max(update.bytes_up for update in events_of(folder, UpdateApplied))


if __name__ == "__main__":
    main()
