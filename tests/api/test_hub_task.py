"""`vcdl.train` of KerasHub's models: what their preprocessor makes of samples, and the job that follows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import vcdl
from tests.models.hub_backbones import drawn
from tests.models.hub_presets import LENGTH, bert_preset, gpt2_preset
from vcdl.errors import DataError
from vcdl.job import load_job

pytestmark = [pytest.mark.keras, pytest.mark.slow]
TEXTS = ["the film was good", "bad", "a great play", "awful"] * 5


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A function that trains nothing, and returns the job file that would be run, its arrays and its model."""
    monkeypatch.chdir(tmp_path)

    def job_of(*arguments: Any, **more: Any) -> dict[str, Any]:
        import keras

        monkeypatch.setattr("vcdl.api.job.JobFile.run", lambda job, out, show: job)
        job: Any = vcdl.train(*arguments, shards=2, **more)
        load_job(job._file)
        folder = job._file.parent
        values: dict[str, Any] = yaml.safe_load(job._file.read_text())
        arrays = dict(np.load(folder / "data.npz"))
        return values | {"arrays": arrays, "built": keras.models.load_model(folder / "model.keras")}

    return job_of


def test_texts_are_packed_as_fit_packs_them(written: Callable[..., Any], tmp_path: Path) -> None:
    from keras_hub import models

    task = models.TextClassifier.from_preset(str(bert_preset(tmp_path / "preset")))
    labels = np.arange(20) % 2
    job = written(task, TEXTS, labels, validation_data=(np.array(TEXTS[:4]), labels[:4]))
    x = task.preprocessor(TEXTS)
    for name in ("token_ids", "padding_mask", "segment_ids"):
        np.testing.assert_array_equal(job["arrays"][f"x_train_{name}"], x[name])
    assert job["arrays"]["x_val_token_ids"].shape == (4, LENGTH)
    assert job["training"]["loss"] == {"name": "sparse_categorical_crossentropy", "from_logits": True}
    assert job["training"]["learning_rate"]["peak"] == 5e-5
    preprocessor, task.preprocessor = task.preprocessor, None
    assert preprocessor is not None
    np.testing.assert_allclose(job["built"].predict(x, verbose=0), task.predict(x, verbose=0), atol=1e-6)


def test_a_language_model_makes_its_labels_and_padding_does_not_count(
    written: Callable[..., Any], tmp_path: Path
) -> None:
    from keras_hub import models

    task = models.CausalLM.from_preset(str(gpt2_preset(tmp_path / "preset")))
    job = written(task, ["abcdefghijk", "abc"] * 4)
    assert job["data"]["task"] == "sequence"
    assert job["data"]["mask"] == -1
    y = job["arrays"]["y_train"]
    assert y[1].tolist() == [0, 1, 2, 27, -1, -1, -1, -1]  # a b c and the end, behind a token that begins
    assert (y[0] >= 0).all()


def test_arrays_for_a_backbone_say_its_length(written: Callable[..., Any]) -> None:
    import keras

    backbone = drawn("DistilBert")
    hidden = backbone(backbone.input)
    model = keras.Model(backbone.input, keras.layers.Dense(2, activation="softmax")(hidden[:, 0]))
    ids = np.arange(60).reshape(20, 3)
    job = written(model, {"token_ids": ids, "padding_mask": np.ones_like(ids)}, np.arange(20) % 2)
    assert [tuple(tensor.shape) for tensor in job["built"].inputs] == [(None, 3), (None, 3)]


def test_samples_that_the_preprocessor_refuses_are_refused(tmp_path: Path) -> None:
    from keras_hub import models

    task = models.TextClassifier.from_preset(str(bert_preset(tmp_path / "preset")))
    with pytest.raises(DataError, match="x: the model's preprocessor refuses it"):
        vcdl.train(task, {"texts": 1}, np.arange(20) % 2)
