"""Labels with a gap are as many as the outputs of a model that has them already."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.data import load_dataset
from vcdl.data.dataset import Dataset
from vcdl.errors import DataError
from vcdl.job import load_job
from vcdl.models.model_classes import load_data_with_model_classes

pytestmark = pytest.mark.keras


def loaded(folder: Path, y: np.ndarray, *overrides: str) -> Dataset:
    """Data of a model that ends in five outputs."""
    np.savez(folder / "d.npz", x_train=np.ones((len(y), 3)), y_train=y, x_val=np.ones((5, 3)), y_val=np.arange(5))
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(5, activation="softmax")])
    (folder / "model.json").write_text(model.to_json())
    (folder / "job.yaml").write_text("name: a\nmodel: {keras_json: model.json}\ndata: {npz: d.npz, shards: 2}\n")
    job = load_job(folder / "job.yaml", overrides)
    return load_data_with_model_classes(job, lambda data: load_dataset(data, job.seed))


def test_a_label_that_the_split_left_out_is_a_class_of_the_model(tmp_path: Path) -> None:
    data = loaded(tmp_path, np.array([0, 1, 2, 4] * 5))
    assert data.outputs == 5
    assert sorted(set(data.y_train.tolist())) == [0, 1, 2, 4]
    assert loaded(tmp_path, np.array([0, 1, 2, 3] * 5)).outputs == 5, "a label that only validation has"


@pytest.mark.parametrize(
    ("labels", "overrides", "reason"),
    [
        ([0, 1, 2, 5], (), "holds the label 5 .* but none of 3…4: correct it|number them"),
        ([0, 1, 2, 4], ("data.classes=4",), "which is not in data > classes"),
        ([0, 1, 2, 4], ("model={builtin: mlp}",), "but none of 3"),
    ],
    ids=["a label beyond the outputs", "the job says how many", "a model that follows the data"],
)
def test_what_the_model_does_not_say_is_refused_as_before(
    labels: list[int], overrides: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=reason):
        loaded(tmp_path, np.array(labels * 5), *overrides)
