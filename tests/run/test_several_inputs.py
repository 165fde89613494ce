"""A model with several inputs, from its data through the client's shard to the export: the numbers are Keras' own."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.run.test_tasks import RNG, N, begun, fitted, measured, shard_of, trained
from vcdl.data.samples import read_samples
from vcdl.run.export import export_model
from vcdl.wire.inputs import as_keras_takes
from vcdl.wire.layout import assign

pytestmark = pytest.mark.keras

WORDS = RNG.integers(0, 9, (N, 4))
TABLE = RNG.normal(size=(N, 3)).astype(np.float32) * [1, 100, 0.01]
LABELS = ((WORDS == 3).any(axis=1) | (TABLE[:, 0] > 0)).astype(np.int32)


def reader() -> Any:
    words, table = keras.Input((4,), dtype="int32", name="words"), keras.Input((3,), name="table")
    both = layers.Concatenate()([layers.Flatten()(layers.Embedding(9, 2)(words)), layers.Dense(3)(table)])
    return keras.Model([words, table], layers.Dense(2, activation="softmax")(both))


def test_several_inputs_are_trained_measured_and_exported_as_keras_does(tmp_path: Path) -> None:
    model = reader()
    inputs: dict[str, Any] = {"x_train_words": WORDS, "x_train_table": TABLE}
    run, vector = begun(tmp_path, model, "normalise: standardise", y_train=LABELS, **inputs)
    by_name = dict(run.prepared.normalisation.inputs)
    assert by_name["words"].integers
    assert len(by_name["table"].scale) == 3

    shard = shard_of(run, model)
    x = as_keras_takes(shard.x)
    assert isinstance(x, dict)
    assert [str(part.dtype) for part in (x["words"], x["table"])] == ["int32", "float32"]
    assert x["table"].std(axis=0) == pytest.approx(1, abs=1e-3)
    first, vector = vector, trained(run, vector, shard)
    expected = fitted(model, run, first, "sparse_categorical_crossentropy", x, shard.y)
    np.testing.assert_allclose(vector, expected, atol=1e-6)

    samples = read_samples(run.folder.validation_file, run.prepared.normalisation)
    given = model.predict(as_keras_takes(samples.load()[0]), verbose=0)
    found = measured(run, vector)
    assert found.loss == pytest.approx(-np.log(given[np.arange(N), LABELS]).mean(), rel=1e-4)
    assert found.metrics["accuracy"] == pytest.approx((given.argmax(axis=1) == LABELS).mean())

    export_model(run.folder, tmp_path / "out.keras", lambda _: 0)
    exported = keras.saving.load_model(tmp_path / "out.keras")
    assert [(tensor.name, tensor.dtype) for tensor in exported.inputs] == [("words", "int32"), ("table", "float32")]
    assign(model, first[: run.layout.model.size])
    raw = exported.predict({"words": WORDS, "table": TABLE.astype(np.float32)}, verbose=0)
    np.testing.assert_allclose(raw, model.predict(as_keras_takes(samples.load()[0]), verbose=0), atol=1e-5)
