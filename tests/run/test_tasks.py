"""Every task, from its data through the client's shard to its measures: the numbers are those of Keras itself."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.batches import steps_of
from vcdl.client.inputs import Shard, read_shard
from vcdl.client.model import input_shapes
from vcdl.client.trainer import Trainer
from vcdl.job import Job, load_job
from vcdl.journal.events import VALIDATION, EvaluationWanted, VersionEvaluated
from vcdl.journal.observer import RunObserver
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import LOCAL
from vcdl.run.run import Run
from vcdl.wire.layout import Vector, assign
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras

N, STEPS, PAD = 40, 5, -100
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(N, 4)).astype(np.float32)
TOKENS = RNG.integers(1, 9, (N, STEPS))
TAGS = np.where(np.arange(STEPS) < RNG.integers(2, STEPS + 1, (N, 1)), TOKENS % 3, PAD)
PIXELS = RNG.random((N, 4, 4, 1)).astype(np.float32)
VOID = np.where(RNG.random((N, 4, 4)) < 0.2, 255, PIXELS[..., 0] > 0.5)


def tagger() -> Any:
    return keras.Sequential([keras.Input((STEPS,)), layers.Embedding(9, 4), layers.Dense(3, activation="softmax")])


def painter() -> Any:
    return keras.Sequential([keras.Input((4, 4, 1)), layers.Conv2D(2, 3, padding="same", activation="softmax")])


def table(outputs: int, activation: str | None) -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(outputs, activation=activation)])


def begun(folder: Path, model: Any, data: str, rest: str = "", **arrays: Any) -> tuple[Run, Vector]:
    """A prepared run over one shard, and its first weights; the validation set is all the training set has."""
    validates = {name.replace("train", "val"): array for name, array in arrays.items() if name[0] in "xy"}
    np.savez(folder / "d.npz", **arrays, **validates)
    (folder / "model.json").write_text(model.to_json())
    (folder / "job.yaml").write_text(
        f"name: a\nmodel: {{keras_json: model.json}}\ndata: {{npz: d.npz, shards: 1, {data}}}\n{rest}\n"
    )
    job: Job = load_job(folder / "job.yaml").trusting("own")
    run_folder = RunFolder(folder / "run")
    run_folder.make()
    run_folder.create(LOCAL)
    run = prepare(run_folder, freeze(job, run_folder), RunObserver())
    return run, read_weights(run_folder.snapshot(0), run.layout.size)[0]


def shard_of(run: Run, model: Any) -> Shard:
    """The only shard, as a client reads it."""
    (run.folder.path / "shard.npz").write_bytes(run.shard_files[0].read_bytes())
    outputs = [output.name for output in run.training.outputs]
    return read_shard(run.folder.path, run.training.normalisation, input_shapes(model), outputs)


def trained(run: Run, vector: Vector, shard: Shard) -> Vector:
    """The model's weights after a client's pass over the shard in its order."""
    trainer = Trainer(run.folder.read_model_json(), run.training)
    trainer.begin(vector, 1, 0.01, steps_of(len(shard), 8))
    trainer.steps(shard.x, shard.y, np.arange(len(shard)), 8, shard.weights)
    return trainer.finish()[: run.layout.model.size]


def fitted(model: Any, run: Run, vector: Vector, loss: Any, x: Any, y: Any, **weights: Any) -> Vector:
    """The weights after model.fit in the same order."""
    assign(model, vector[: run.layout.model.size])
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, **weights)
    return np.concatenate([weight.reshape(-1) for weight in model.get_weights()])


def measured(run: Run, vector: Vector) -> VersionEvaluated:
    return Evaluator(run, run.journal()).evaluation(EvaluationWanted(0, 1, VALIDATION), vector)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("build", "task", "mask", "x", "y"),
    [(tagger, "sequence", PAD, TOKENS, TAGS), (painter, "segmentation", 255, PIXELS, VOID)],
)
def test_masked_labels_count_in_nothing(build: Any, task: str, mask: int, x: Any, y: Any, tmp_path: Path) -> None:
    model = build()
    adam = "training: {optimizer: adam}"
    run, vector = begun(tmp_path, model, f"task: {task}, mask: {mask}", adam, x_train=x, y_train=y)
    shard = shard_of(run, model)
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    expected = fitted(model, run, vector, ignoring, shard.x, shard.y)
    np.testing.assert_allclose(trained(run, vector, shard), expected, atol=1e-6)

    assign(model, vector[: run.layout.model.size])
    given = model.predict(x if task == "sequence" else (x - x.min()) / (x.max() - x.min()), verbose=0)
    counts = y != mask
    right = np.take_along_axis(given, np.where(counts, y, 0)[..., None].astype(int), axis=-1)[..., 0]
    found = measured(run, vector)
    assert found.loss == pytest.approx(-np.log(right[counts]).mean(), rel=1e-5)
    assert found.metrics["accuracy"] == pytest.approx((given.argmax(-1) == y)[counts].mean(), rel=1e-6)


def test_class_weights_train_as_those_of_fit_do(tmp_path: Path) -> None:
    names = np.array(["usual", "usual", "usual", "rare"])[np.arange(N) % 4]
    weights = "training: {class_weight: {rare: 3, usual: 0.5}}"
    model = table(2, "softmax")
    run, vector = begun(tmp_path, model, "normalise: none", weights, x_train=TABLE, y_train=names)
    assert run.prepared.classes == ("rare", "usual")
    shard = shard_of(run, model)
    loss = "sparse_categorical_crossentropy"
    expected = fitted(model, run, vector, loss, shard.x, shard.y, class_weight={0: 3.0, 1: 0.5})
    np.testing.assert_allclose(trained(run, vector, shard), expected, atol=1e-6)
    assert np.abs(expected - fitted(model, run, vector, loss, shard.x, shard.y)).max() > 1e-3


def test_balanced_classes_weigh_alike_and_sample_weights_multiply(tmp_path: Path) -> None:
    y, sample = np.arange(N) % 4 == 0, np.linspace(0, 2, N)
    model, rest = table(2, "softmax"), "training: {class_weight: balanced}"
    run, vector = begun(tmp_path, model, "normalise: none", rest, x_train=TABLE, y_train=y, weight_train=sample)
    shard = shard_of(run, model)
    order = [int(np.flatnonzero((row == TABLE).all(axis=1))[0]) for row in shard.x]
    weights = np.where(y, 2.0, 2 / 3)[order] * sample[order]
    assert shard.weights is not None
    assert shard.weights.tolist() == pytest.approx(weights.tolist(), rel=1e-6)
    loss = "sparse_categorical_crossentropy"
    expected = fitted(model, run, vector, loss, shard.x, shard.y, sample_weight=weights)
    np.testing.assert_allclose(trained(run, vector, shard), expected, atol=1e-6)


def test_an_autoencoder_is_stored_once_and_compared_with_what_it_sees(tmp_path: Path) -> None:
    model = table(4, None)
    run, vector = begun(tmp_path, model, "task: autoencoder, normalise: standardise", x_train=TABLE * 100)
    with np.load(run.shard_files[0]) as arrays:
        assert set(arrays) == {"x"}
    shard = shard_of(run, model)
    assert np.array_equal(shard.x, shard.y)
    assert shard.x.std() == pytest.approx(1, rel=0.05)
    assign(model, vector[: run.layout.model.size])
    squares = np.square(model.predict(shard.x, verbose=0) - shard.x).mean()
    assert measured(run, vector).loss == pytest.approx(squares, rel=1e-5)
    assert run.training.loss.name == "mean_squared_error"


def test_several_labels_a_sample_have_an_output_each(tmp_path: Path) -> None:
    y = (TABLE[:, :3] > 0).astype(int)
    model = table(3, "sigmoid")
    options = "task: multi_label, classes: [a, b, c], normalise: none"
    run, vector = begun(tmp_path, model, options, x_train=TABLE, y_train=y)
    assert (run.training.loss.name, run.prepared.classes) == ("binary_crossentropy", ("a", "b", "c"))
    assign(model, vector[: run.layout.model.size])
    right = np.mean((model.predict(TABLE, verbose=0) > 0.5) == y)
    assert measured(run, vector).metrics["binary_accuracy"] == pytest.approx(right, rel=1e-6)
