"""Data and model of a job, put together: how inputs are normalised, and what is refused."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.data import load_dataset
from vcdl.errors import DataError, JobError
from vcdl.job import load_job
from vcdl.models.fitted import Fitted, build_fitted
from vcdl.wire.workunit import Normalisation

pytestmark = pytest.mark.keras

SAMPLES = 40


def words() -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Embedding(9, 3), layers.Flatten(), layers.Dense(2, "softmax")])


def dense() -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Dense(2, activation="softmax")])


def fit(folder: Path, model: Any, *overrides: str) -> Fitted:
    """A model over tokens 0…8, with two classes."""
    rng = np.random.default_rng(0)
    np.savez(folder / "d.npz", x_train=rng.integers(0, 9, (SAMPLES, 6)), y_train=np.arange(SAMPLES) % 2)
    (folder / "model.json").write_text(model.to_json())
    (folder / "job.yaml").write_text("name: a\nmodel: {keras_json: model.json}\ndata: {npz: d.npz, shards: 2}\n")
    job = load_job(folder / "job.yaml", overrides)
    return build_fitted(job, load_dataset(job.data, job.seed))


@pytest.mark.parametrize("normalise", ["auto", "none"])
def test_tokens_of_an_embedding_stay_whole(normalise: str, tmp_path: Path) -> None:
    assert fit(tmp_path, words(), f"data.normalise={normalise}").normalisation.integers


def test_an_optimizer_that_would_never_step_is_refused(tmp_path: Path) -> None:
    def overrides(batches: int) -> list[str]:
        optimizer = f"{{name: adam, gradient_accumulation_steps: {batches}}}"
        return [f"training.optimizer={optimizer}", "training.batch_size=6", "training.local_epochs=2"]

    assert fit(tmp_path, dense(), *overrides(6)).training.optimizer.name == "adam"  # 18 samples a shard
    with pytest.raises(
        JobError, match=r"gradient_accumulation_steps: a step takes 7 batches, .*subtask has 6: lower it"
    ):
        fit(tmp_path, dense(), *overrides(7))


@pytest.mark.parametrize("normalise", ["scale", "standardise"])
def test_tokens_are_not_scaled_when_the_job_asks_for_it(normalise: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=f"data > normalise: {normalise} would turn .* 'embedding.*: remove it"):
        fit(tmp_path, words(), f"data.normalise={normalise}")


@pytest.mark.parametrize(("is_adapted", "normalise"), [(True, "auto"), (True, "standardise"), (False, "auto")])
def test_a_model_that_normalises_by_itself_gets_samples_as_they_are(
    is_adapted: bool, normalise: str, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(50, 9, (SAMPLES, 6)).astype(np.float32)
    scaling = layers.Normalization()
    inside = keras.Sequential([keras.Input((6,)), scaling])
    model = keras.Sequential([keras.Input((6,)), inside, layers.Dense(2, activation="softmax")])
    if is_adapted:
        scaling.adapt(x)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(SAMPLES) % 2)
    model.save(tmp_path / "m.keras")
    (tmp_path / "job.yaml").write_text("name: a\nmodel: {keras: m.keras}\ndata: {npz: d.npz, shards: 2}\n")
    job = load_job(tmp_path / "job.yaml", [f"data.normalise={normalise}"])
    found = build_fitted(job, load_dataset(job.data, job.seed)).normalisation
    assert (found == Normalisation()) is (is_adapted and normalise == "auto")


@pytest.mark.parametrize(
    ("array", "begin", "step", "is_refused"),
    [
        ("x_train", 10**9, 1, True), ("y_train", 10**9, 1, True), ("x_train", -(10**12), 1000, True),
        ("x_train", 2**24 - SAMPLES, 1, False), ("y_train", 10**9, 10**8, False), ("x_train", 10**9, 0, False),
    ],
)  # fmt: skip
def test_whole_numbers_that_float32_makes_one_of_are_refused(
    array: str, begin: int, step: int, is_refused: bool, tmp_path: Path
) -> None:
    arrays: dict[str, Any] = {
        "x_train": np.random.default_rng(0).normal(size=(SAMPLES, 6)),
        "y_train": np.arange(SAMPLES) % 3,
    }
    large = begin + step * np.arange(SAMPLES)
    arrays[array] = large if array == "y_train" else np.stack([large] * 6, axis=1)
    np.savez(tmp_path / "d.npz", **arrays)
    (tmp_path / "job.yaml").write_text("name: a\nmodel: {builtin: mlp}\ndata: {npz: d.npz, task: regression}\n")
    job = load_job(tmp_path / "job.yaml")
    if not is_refused:
        build_fitted(job, load_dataset(job.data, job.seed))
        return
    with pytest.raises(DataError, match=f"{array} has .*which float32 rounds to a few values: subtract"):
        build_fitted(job, load_dataset(job.data, job.seed))
