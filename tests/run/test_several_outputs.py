"""A model with several outputs, from its labels through a client's shard to the export: the numbers are Keras' own."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.run.test_tasks import TABLE, N, begun, measured, shard_of, trained
from vcdl.data.samples import read_samples
from vcdl.run.export import classes_file, export_model
from vcdl.wire.inputs import as_keras_takes
from vcdl.wire.layout import assign

pytestmark = pytest.mark.keras

KIND = np.array(["low", "high", "mid"])[np.arange(N) % 3]
SIZE = TABLE[:, 0] * 3
FLAGS = (TABLE[:, 1:3] > 0).astype(np.int32)
OUTPUTS = """outputs: [
  {name: kind, metrics: [perplexity]}, {name: size, task: regression, loss: huber, weight: 0.5},
  {name: flags, task: multi_label, classes: [old, new], metrics: []}]"""
LABELS = {"y_train_kind": KIND, "y_train_size": SIZE, "y_train_flags": FLAGS}


def judge() -> Any:
    table = keras.Input((4,))
    ends = [
        layers.Dense(3, activation="softmax", name="kind")(table),
        layers.Dense(1, name="size")(table),
        layers.Dense(2, activation="sigmoid", name="flags")(table),
    ]
    return keras.Model(table, ends)


@pytest.mark.nightly
def test_several_outputs_are_trained_measured_and_exported_as_keras_does(tmp_path: Path) -> None:
    model = judge()
    run, first = begun(tmp_path, model, OUTPUTS, "stop: {monitor: val_kind_perplexity}", x_train=TABLE, **LABELS)
    assert dict(run.prepared.classes_by_output) == {"kind": ("high", "low", "mid"), "flags": ("old", "new")}
    shard = shard_of(run, model)
    vector = trained(run, first, shard)

    labels = as_keras_takes(shard.y)
    losses = {"kind": "sparse_categorical_crossentropy", "size": "huber", "flags": "binary_crossentropy"}
    assign(model, first[: run.layout.model.size])
    model.compile(keras.optimizers.Adam(0.01), losses, loss_weights={"kind": 1.0, "size": 0.5, "flags": 1.0})
    model.fit(shard.x, labels, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(vector, np.concatenate([w.reshape(-1) for w in model.get_weights()]), atol=1e-6)

    samples = read_samples(run.folder.validation_file, run.prepared.normalisation)
    expected = model.evaluate(samples.x, as_keras_takes(samples.load()[1]), verbose=0, return_dict=True, batch_size=N)
    found = measured(run, vector)
    assert found.loss == pytest.approx(expected["loss"], rel=1e-5)
    assert {name for name in found.metrics if not name.endswith("_loss")} == {
        "kind_accuracy",
        "kind_perplexity",
        "size_mean_absolute_error",
    }
    assert found.metrics["kind_perplexity"] == pytest.approx(np.exp(expected["kind_loss"]), rel=1e-4)
    sizes = model.predict(samples.x, verbose=0)[1][:, 0]
    assert found.metrics["size_mean_absolute_error"] == pytest.approx(np.abs(sizes - SIZE).mean(), rel=1e-4)

    export_model(run.folder, tmp_path / "out.keras", lambda _: 0)
    exported = keras.saving.load_model(tmp_path / "out.keras")
    assert exported.output_names == ["kind", "size", "flags"]
    names = json.loads(classes_file(tmp_path / "out.keras").read_text())["classes"]
    assert names == {"kind": ["high", "low", "mid"], "flags": ["old", "new"]}
    assign(model, first[: run.layout.model.size])
    for ours, theirs in zip(exported.predict(TABLE, verbose=0), model.predict(samples.x, verbose=0), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    places = {"high": 0, "low": 1, "mid": 2}
    numbered = {"kind": np.array([places[kind] for kind in KIND]), "size": SIZE, "flags": FLAGS}
    assert np.isfinite(exported.evaluate(TABLE, numbered, verbose=0, return_dict=True)["loss"])  # it comes compiled
