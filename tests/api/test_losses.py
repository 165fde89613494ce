"""Models whose labels have the shape of their outputs: the losses of their run are those of Keras."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import vcdl
from tests.run.test_tasks import measured, shard_of
from vcdl.client.trainer import Trainer
from vcdl.job import load_job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import LOCAL
from vcdl.wire.layout import assign
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras

N, BATCH = 32, 8
RNG = np.random.default_rng(0)
IMAGES = RNG.random((N, 8, 8, 1)).astype(np.float32)
TABLE = RNG.normal(size=(N, 6)).astype(np.float32)
SERIES = RNG.normal(size=(N, 5, 4)).astype(np.float32)
ONE_HOT = np.eye(3, dtype=np.float32)[np.arange(N) % 3]


def painter(last: Any) -> Any:
    """A small U-Net."""
    inputs = keras.Input((8, 8, 1))
    across = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    deep = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.MaxPooling2D()(across))
    return keras.Model(inputs, last(layers.Concatenate()([across, layers.UpSampling2D()(deep)])))


def pixels() -> Any:
    return painter(layers.Conv2D(1, 1, activation="sigmoid"))


def table(outputs: int, activation: str | None) -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Dense(outputs, activation=activation)])


def tagger(outputs: int) -> Any:
    return keras.Sequential([keras.Input((5, 4)), layers.Dense(outputs, activation="sigmoid")])


def smoothed(**more: Any) -> Any:
    return keras.losses.CategoricalCrossentropy(label_smoothing=0.1, **more)


CASES: dict[str, tuple[Callable[[], Any], Any, Any, Any]] = {
    "a binary U-Net": (pixels, "binary_crossentropy", IMAGES, (IMAGES > 0.5).astype(np.uint8)),
    "one with masks of float32": (pixels, "binary_crossentropy", IMAGES, (IMAGES > 0.5).astype(np.float32)),
    "one without an axis of channels": (pixels, "binary_crossentropy", IMAGES, (IMAGES[..., 0] > 0.5)),
    "one that ends in logits": (
        lambda: painter(layers.Conv2D(1, 1)), keras.losses.BinaryCrossentropy(from_logits=True), IMAGES, IMAGES > 0.5,
    ),
    "a denoising autoencoder": (pixels, "binary_crossentropy", IMAGES + 0.1, IMAGES),
    "a tagger of one question": (lambda: tagger(1), "binary_crossentropy", SERIES, (SERIES[..., :1] > 0).astype(int)),
    "a tagger of several": (lambda: tagger(3), "binary_crossentropy", SERIES, (SERIES[..., :3] > 0).astype(int)),
    "soft labels": (lambda: table(1, "sigmoid"), "binary_crossentropy", TABLE, RNG.random(N)),
    "several soft labels": (lambda: table(3, "sigmoid"), "binary_crossentropy", TABLE, RNG.random((N, 3))),
    "soft classes": (lambda: table(3, "softmax"), "categorical_crossentropy", TABLE, ONE_HOT * 0.8 + 0.1),
    "smoothed labels": (lambda: table(3, "softmax"), smoothed(), TABLE, ONE_HOT),
    "smoothed labels of logits": (lambda: table(3, None), smoothed(from_logits=True), TABLE, ONE_HOT),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_the_losses_of_training_and_measuring_are_those_of_keras(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build, loss, x, y = CASES[case]
    model = build()
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    monkeypatch.setattr("vcdl.api.job.JobFile.run", lambda job, out, show: job)
    given: Any = vcdl.train(model, x, y, validation_data=(x, y), shards=1, batch_size=BATCH, epochs=2)
    folder = RunFolder(tmp_path / "run")
    folder.make()
    folder.create(LOCAL)
    run = prepare(folder, freeze(load_job(given._file).trusting("own"), folder), RunObserver())
    vector = read_weights(folder.snapshot(0), run.layout.size)[0]

    found = measured(run, vector)
    assert found.loss == pytest.approx(model.evaluate(x, y, verbose=0)[0], rel=1e-5)
    assert 0 <= found.metrics["accuracy"] <= 1

    shard = shard_of(run, model)
    trainer = Trainer(folder.read_model_json(), run.training, run.frozen_weights())
    trainer.begin(vector, 1, 0.01, N // BATCH)
    losses = trainer.steps(shard.x, shard.y, np.arange(N), BATCH)
    place = [int(np.flatnonzero((x == sample).reshape(N, -1).all(axis=1))[0]) for sample in shard.x]
    assign(model, vector[: run.layout.model.size])
    model.compile(keras.optimizers.Adam(0.01), loss)
    expected = [model.train_on_batch(x[some], y[some]) for some in np.reshape(place, (-1, BATCH))]
    np.testing.assert_allclose(losses, [np.ravel(value)[0] for value in expected], rtol=1e-4)
