"""`vcdl.train` before its process starts: what it makes of its arguments, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.sparse import csr_matrix

import vcdl
from vcdl.api import training
from vcdl.errors import DataError, JobError, ModelError, VcdlError
from vcdl.job import load_job

pytestmark = pytest.mark.keras

X = np.arange(40, dtype=np.float64).reshape(20, 2)
Y = np.arange(20) % 2


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(**compiled: Any) -> Any:
    import keras

    made = keras.Sequential([keras.layers.Dense(2, activation="softmax")], name="My_Model")
    if compiled:
        made.compile(**compiled)
    return made


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A function that trains nothing, and returns the job file that would be run."""

    def job_of(*arguments: Any, **more: Any) -> dict[str, Any]:
        monkeypatch.setattr("vcdl.api.job.JobFile.run", lambda job, out, show: job)
        job: Any = vcdl.train(*arguments, **more)
        load_job(job._file)
        loaded: dict[str, Any] = yaml.safe_load(job._file.read_text())
        return {**loaded, "folder": job._file.parent}

    return job_of


def test_a_stream_is_trained_from_its_own_files(written: Callable[..., dict[str, Any]]) -> None:
    batches = ((X[first : first + 6].astype(np.float32), Y[first : first + 6]) for first in range(0, 20, 6))
    job = written(model(), batches, validation_data=(X[:4], Y[:4]))
    assert job["data"] == {"from": {"path": "data", "as": "arrays"}, "normalise": "none"}
    np.testing.assert_array_equal(np.load(job["folder"] / "data" / "x_train.npy"), X)
    assert not (job["folder"] / "data.npz").exists()
    np.save("x.npy", X)
    assert written(model(), np.load("x.npy", mmap_mode="r"), Y, name="mapped")["data"]["from"]["as"] == "arrays"


def test_a_stream_of_dicts_with_weights_trains_a_model_of_two_inputs(written: Callable[..., dict[str, Any]]) -> None:
    import keras

    ends = [keras.Input((2,), name=name) for name in "ab"]
    both = keras.Model(ends, keras.layers.Dense(2, activation="softmax")(keras.layers.Concatenate()(ends)))
    job = written(both, (({"a": x, "b": x}, y, 1.0) for x, y in zip(X, Y, strict=True)))
    arrays = np.load(job["folder"] / "data.npz")
    assert set(arrays) == {"x_train_a", "x_train_b", "y_train", "weight_train"}


OWN_STEPS = """
import keras
from keras import ops

class Own(keras.Model):
    def __init__(self, **more):
        super().__init__(**more)
        self.inner = keras.layers.Dense(2)

    def build(self, shape):
        self.inner.build(shape)
        self.built = True

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {}

    def train_step(self, data):
        x, *_ = keras.utils.unpack_x_y_sample_weight(data)
        return {"loss": ops.mean(ops.square(self(x)))}

    test_step = train_step
"""


def test_a_model_with_steps_of_its_own_needs_no_y(
    written: Callable[..., dict[str, Any]], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "own").mkdir()
    (here / "own" / "own_steps_without_y.py").write_text(OWN_STEPS)
    monkeypatch.syspath_prepend(here / "own")
    made = __import__("own_steps_without_y").Own(name="own")
    made.compile(optimizer="adam")
    job = written(made, X, code="own", validation_data=(X[:4], None))
    assert job["data"]["task"] == "autoencoder"
    assert set(np.load(job["folder"] / "data.npz")) == {"x_train", "x_val"}
    assert written(made, X, X, code="own", name="twice")["data"]["task"] == "autoencoder"


def test_it_writes_a_folder_that_vcdl_run_could_take(written: Callable[..., dict[str, Any]]) -> None:
    job = written(model(), X, Y, validation_data=(X[:4], Y[:4]), test_data=(X[4:8], Y[4:8]), epochs=3, shards=2, seed=7)
    assert (job["name"], job["seed"], job["stop"]) == ("my_model", 7, {"epochs": 3})
    assert job["model"] == {"keras": "model.keras"}
    assert job["data"] == {"npz": "data.npz", "normalise": "none", "shards": 2}
    assert job["folder"] == Path.cwd() / "runs" / "my_model" / "given"
    arrays = np.load(job["folder"] / "data.npz")
    assert {name: len(arrays[name]) for name in arrays} == {
        "x_train": 20, "y_train": 20, "x_val": 4, "y_val": 4, "x_test": 4, "y_test": 4,
    }  # fmt: skip
    assert np.array_equal(arrays["x_train"], X)


def test_sections_go_before_what_follows_from_the_model(written: Callable[..., dict[str, Any]]) -> None:
    made = model(optimizer="adam", loss="sparse_categorical_crossentropy")
    job = written(made, X, Y, batch_size=4, training={"optimizer": "sgd"}, update={"rule": "vc_asgd"}, out="runs/B c")
    assert job["name"] == "b_c"
    assert (job["training"]["optimizer"], job["training"]["batch_size"]) == ("sgd", 4)
    assert job["training"]["loss"] == "sparse_categorical_crossentropy"
    assert job["update"] == {"rule": "vc_asgd"}


def test_callbacks_become_settings_beside_those_that_are_given(written: Callable[..., dict[str, Any]]) -> None:
    from keras.callbacks import EarlyStopping

    job = written(model(), X, Y, epochs=3, stop={"wall_time_s": 60}, callbacks=[EarlyStopping(patience=2)])
    assert job["stop"] == {"epochs": 3, "wall_time_s": 60, "monitor": "val_loss", "patience": 2}
    assert "validation" not in written(model(), X, Y, validation_split=0.0, validation_data=(X, Y), name="v")["data"]


def test_a_sparse_matrix_gets_its_zeros_if_there_is_room(
    written: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = csr_matrix(np.where(X > 0, X, 0))
    stored = np.load(written(model(), sparse, Y)["folder"] / "data.npz")["x_train"]
    np.testing.assert_array_equal(stored, sparse.toarray().astype(np.float32))
    monkeypatch.setattr("vcdl.api.given.available_memory_bytes", lambda: 100)
    with pytest.raises(DataError, match=r"x is sparse, and takes .* GiB with its zeros, more than the 0\.0 GiB"):
        vcdl.train(model(), sparse, Y)


def test_one_hot_labels_become_classes(written: Callable[..., dict[str, Any]]) -> None:
    made = model(loss="categorical_crossentropy", metrics=["accuracy", "categorical_accuracy"])
    job = written(made, X, np.eye(2)[Y], test_data=(X[:5], np.eye(2)[Y[:5]]))
    assert job["training"]["loss"] == "sparse_categorical_crossentropy"
    assert job["training"]["metrics"] == ["accuracy", "sparse_categorical_accuracy"]
    arrays = np.load(job["folder"] / "data.npz")
    assert np.array_equal(arrays["y_train"], Y)
    assert np.array_equal(arrays["y_test"], Y[:5])


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"verbose": 0}, JobError, r"vcdl.train has no verbose: run.wait"),
        ({"validation_split": 0.0}, JobError, r"data > validation: expected a whole number"),
        ({"updates": {}}, JobError, r"updates is no section of a job file; did you mean update\?"),
        ({"shards": 0}, JobError, r"vcdl.train: data > shards: expected a whole number ≥ 1, got 0"),
        ({"update": {"rule": "sum"}}, JobError, r"vcdl.train: update > rule: expected one of"),
        ({"epochs": 3, "stop": {"epochs": 2}}, JobError, r"epochs and stop={'epochs': …} say the same: give one"),
        ({"training": "fast"}, JobError, r"data and training are sections: give a dict of their keys"),
        ({"stop": {"patience": object()}}, JobError, r"stop > patience: expected a number, a text"),
        ({"validation_data": X}, DataError, r"validation_data: expected a pair \(x, y\)"),
        ({"test_data": (X, None)}, DataError, r"test_data: y is missing: give arrays x and y"),
        ({"x": X[:, :, None, None], "layers": "LSTM"}, ModelError, r"cannot be built for samples of shape \(2, 1, 1\)"),
        ({"x": X[:, 0]}, DataError, r"x has shape \(20,\), expected \(samples, …\)"),
        (
            {"layers": "Own"},
            ModelError,
            r"Own': a class that is not part of Keras, and clients do not run code of a job",
        ),
        ({"layers": "Two"}, DataError, r"x: the model has the inputs a, b: give a dict with an array for each"),
        ({"layers": "Ends"}, DataError, r"y: the model has the outputs a, b: give a dict with an array for each"),
        ({"layers": "Ends", "y": [Y, Y]}, JobError, r"outputs a, b: compile it with a loss for each"),
        ({"simulate": 10}, JobError, r"simulate: expected keys of a clients file, such as {'clients': 10}, or True"),
        ({"simulate": {"client": 3}}, JobError, r"client: unknown key; did you mean clients\?"),
        ({"x": [1], "y": None}, DataError, r"y is missing: .* without labels give x twice, or a model with a train_st"),
        ({"x": iter([X]), "y": None}, DataError, r"x gives a ndarray, expected pairs"),
        ({"x": "data.csv"}, DataError, r"x is a name, 'data.csv': read the file with numpy or pandas"),
        (
            {"layers": "Sparse", "y": np.eye(2)[Y]},
            DataError,
            r"y is one-hot, and .*: give y.argmax\(axis=-1\), or compile with categorical_",
        ),
        ({"epoch": 1}, JobError, r"epoch is no section of a job file; did you mean epochs\?"),
        ({"epochs": 10**12}, JobError, r"stop > epochs: expected a whole number from 1 to 1000000, got 1000000000000"),
        ({"layers": "Lambda"}, ModelError, r"'activation' of its own, but clients do not run code of a job: use one"),
        ({"model": "mlp"}, ModelError, r"the model is a builtins.str, expected a keras.Model"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given.__name__ if isinstance(given, type) else "",
)
def test_what_is_wrong_is_refused_with_the_cure_and_leaves_nothing(
    arguments: dict[str, Any], kind: type[VcdlError], words: str, here: Path
) -> None:
    made = odd_model(arguments["layers"]) if "layers" in arguments else model()
    given = {key: value for key, value in arguments.items() if key != "layers"}
    with pytest.raises(kind, match=words):
        vcdl.train(**{"model": made, "x": X, "y": Y, **given})
    assert [path for path in here.rglob("*") if path.is_file()] == []


def odd_model(kind: str) -> Any:
    import keras

    if kind == "Two":
        inputs = [keras.Input((2,), name="a"), keras.Input((2,), name="b")]
        return keras.Model(inputs, keras.layers.Concatenate()(inputs))
    if kind == "Ends":
        one = keras.Input((2,))
        return keras.Model(one, [keras.layers.Dense(1, name="a")(one), keras.layers.Dense(2, name="b")(one)])
    if kind == "Sparse":
        return model(loss="sparse_categorical_crossentropy")
    if kind == "Lambda":
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, activation=lambda x: x)])
    if kind == "LSTM":
        return keras.Sequential([keras.layers.LSTM(2)])

    class Own(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    return keras.Sequential([keras.Input((2,)), Own()])


def test_a_model_that_keras_cannot_save_is_refused_and_leaves_nothing(here: Path) -> None:
    made = model()

    def no(_: object) -> None:
        raise ValueError("no such\nthing")

    made.save = no
    with pytest.raises(ModelError, match=r"Keras cannot save the model \(no such thing\): use Keras' own layers"):
        vcdl.train(made, X, Y)
    assert list((here / "runs").iterdir()) == []


def test_every_argument_of_fit_is_known_or_has_a_cure() -> None:
    import inspect

    import keras

    ours = {*inspect.signature(vcdl.train).parameters, *training._OF_FIT, "self"}
    assert set(inspect.signature(keras.Model.fit).parameters) <= ours
