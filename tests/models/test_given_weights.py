"""Weights that a job brings: which files are taken, and how others are refused."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.job.model import ModelSettings
from vcdl.models import given_weights
from vcdl.models.build import build_model
from vcdl.wire.npz_form import NpzFile
from vcdl.wire.workunit import Named

pytestmark = pytest.mark.keras

MLP = Named("mlp", {"units": [6], "dropout": 0.0})


def a_model(units: int = 6, outputs: int = 3) -> keras.Model:
    """The model of MLP, with other weights."""
    layers = keras.layers
    inputs = keras.Input((4,), name="input")
    x = layers.Dense(units, activation="relu", name="dense_1")(layers.Flatten(name="flatten")(inputs))
    model = keras.Model(inputs, layers.Dense(outputs, activation="softmax", name="output")(x), name="mlp")
    model.set_weights([np.full(weight.shape, 0.25 * n, np.float32) for n, weight in enumerate(model.weights)])
    return model


def flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([value.reshape(-1) for value in model.get_weights()])


def save_npz(path: Path, model: keras.Model) -> None:
    np.savez(path, *model.get_weights())


def save_named(path: Path, model: keras.Model) -> None:
    np.savez(path, **dict(zip((weight.path for weight in model.weights), model.get_weights(), strict=True)))


FORMS: dict[str, tuple[str, Callable[[Path, keras.Model], None]]] = {
    "keras": ("m.keras", lambda path, model: model.save(path)),
    "h5": ("m.weights.h5", lambda path, model: model.save_weights(path)),
    "npz": ("m.npz", save_npz),
    "named npz": ("m.npz", save_named),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_in_each_kind_of_file_are_taken(form: str, tmp_path: Path) -> None:
    name, save = FORMS[form]
    save(tmp_path / name, a_model())
    built = build_model(ModelSettings(builtin=MLP, weights=tmp_path / name), (4,), 3, seed=5)
    np.testing.assert_array_equal(built.weights, flat(a_model()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("units", "outputs", "layer"), [(7, 3, "dense_1"), (6, 2, "output")])
def test_weights_of_another_model_are_refused_with_the_layer_that_does_not_fit(
    form: str, units: int, outputs: int, layer: str, tmp_path: Path
) -> None:
    name, save = FORMS[form]
    save(tmp_path / name, a_model(units, outputs))
    with pytest.raises(ModelError, match=rf"m\.[\w.]+ does not fit the model: .*{layer}.*shape") as refused:
        build_model(ModelSettings(builtin=MLP, weights=tmp_path / name), (4,), 3)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_not_finite_are_refused(form: str, tmp_path: Path) -> None:
    model = a_model()
    model.layers[-1].bias.assign([0.0, np.nan, 0.0])
    name, save = FORMS[form]
    save(tmp_path / name, model)
    with pytest.raises(ModelError, match="output/bias holds numbers that are not finite"):
        build_model(ModelSettings(builtin=MLP, weights=tmp_path / name), (4,), 3)


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "m.npz"])
def test_a_damaged_file_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\nPK" + bytes(300))
    with pytest.raises(ModelError, match=r"write it with") as refused:
        build_model(ModelSettings(builtin=MLP, weights=tmp_path / name), (4,), 3)
    assert "\n" not in str(refused.value)


def zip_bomb(path: Path) -> None:
    a_model().save(path)
    with zipfile.ZipFile(path) as whole:
        config = whole.read("config.json")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("config.json", config)
        bomb.writestr("model.weights.h5", bytes(1 << 20))


def h5_bomb(path: Path) -> None:
    """Weights of 4 TB, in chunks that are not there."""
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("layers/dense/vars/0", (1 << 20, 1 << 20), "f4", chunks=(1024, 1024), compression="gzip")


def npz_bomb(path: Path) -> None:
    np.savez_compressed(path, np.zeros(1 << 20), *a_model().get_weights()[1:])


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("m.keras", zip_bomb, "far more than the model's weights"),
        ("m.weights.h5", h5_bomb, "1099511627776 numbers, far more"),
        ("m.npz", npz_bomb, r"dense_1/kernel has shape \(4, 6\), the file \(1048576,\)"),
    ],
)
def test_a_bomb_is_refused_before_it_is_unpacked(
    name: str, write: Callable[[Path], None], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name)
    monkeypatch.setattr(given_weights, "_NUMBERS_MORE", 1000)
    monkeypatch.setattr("shutil.copyfileobj", lambda *_: pytest.fail("unpacked"))
    monkeypatch.setattr(NpzFile, "read", lambda *_: pytest.fail("read"))
    with pytest.raises(ModelError, match=says):
        build_model(ModelSettings(builtin=MLP, weights=tmp_path / name), (4,), 3)


def test_a_name_in_a_file_that_is_no_text_is_refused_in_a_line(tmp_path: Path) -> None:
    a_model().save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "r+") as file:
        file.create_group(b"layers/\xff\xfe")
    with pytest.raises(ModelError, match="holds no weights"):
        given_weights.load_given_weights(a_model(), tmp_path / "m.weights.h5")


@pytest.mark.parametrize("kind", ["storage", "link", "virtual"])
@pytest.mark.parametrize("form", [".weights.h5", ".keras"])
def test_weights_that_lie_in_another_file_are_refused(kind: str, form: str, tmp_path: Path) -> None:
    secret, other, path = tmp_path / "secret.bin", tmp_path / "other.h5", tmp_path / "m.weights.h5"
    secret.write_bytes(np.ones((4, 6), np.float32).tobytes())
    with h5py.File(other, "w") as file:
        file["x"] = np.ones((4, 6), np.float32)
    model = a_model()
    model.save_weights(path)
    with h5py.File(path, "r+") as file:
        variables = file["layers/dense/vars"]
        del variables["0"]
        if kind == "storage":
            variables.create_dataset("0", (4, 6), "f4", external=[(str(secret), 0, 96)])
        elif kind == "link":
            variables["0"] = h5py.ExternalLink(str(other), "x")
        else:
            layout = h5py.VirtualLayout((4, 6), "f4")
            layout[:] = h5py.VirtualSource(str(other), "x", (4, 6))
            variables.create_virtual_dataset("0", layout)
    if form == ".keras":
        model.save(tmp_path / "whole.keras")
        with zipfile.ZipFile(tmp_path / "whole.keras") as whole, zipfile.ZipFile(tmp_path / "m.keras", "w") as changed:
            for name in whole.namelist():
                changed.writestr(name, path.read_bytes() if name == "model.weights.h5" else whole.read(name))
    with pytest.raises(ModelError, match=r"leads out of the file|Not allowed"):
        given_weights.load_given_weights(a_model(), tmp_path / f"m{form}")


def test_a_saved_model_is_taken_with_its_weights_and_without_its_optimizer(tmp_path: Path) -> None:
    model = a_model(5)
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 4)), np.zeros((4, 3)), verbose=0)
    model.save(tmp_path / "m.keras")
    built = build_model(ModelSettings(keras=tmp_path / "m.keras"), (4,), 3, seed=5)
    np.testing.assert_array_equal(built.weights, flat(model))
    assert "Adam" not in built.json
    assert load_model(built.json).output_shape == (None, 3)


def test_a_saved_model_with_code_is_refused_by_its_name_before_keras_sees_it(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x + 1, name="plus"), a_model()])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ModelError, match=r"Lambda.*contains code"):
        build_model(ModelSettings(keras=tmp_path / "m.keras"), (4,), 3)


FUNCTIONS = """
import keras, numpy as np

def fresh(input_shape, outputs):
    layers = keras.layers
    return keras.Sequential([
        keras.Input(input_shape), layers.Dense(8), layers.Dropout(0.5), layers.Dense(outputs, activation="softmax")
    ])

def pretrained(input_shape, outputs):
    model = fresh(input_shape, outputs)
    model.set_weights([np.full(weight.shape, 0.5, np.float32) for weight in model.weights])
    return model
"""


def test_the_weights_that_a_python_function_returns_are_kept(tmp_path: Path) -> None:
    (tmp_path / "kept_models.py").write_text(FUNCTIONS)
    built = build_model(ModelSettings(python="kept_models:pretrained", python_folder=tmp_path), (4,), 3, seed=1)
    assert set(built.weights) == {0.5}


def test_the_fresh_weights_of_a_python_function_follow_the_seed_as_those_of_its_json_do(tmp_path: Path) -> None:
    (tmp_path / "fresh_models.py").write_text(FUNCTIONS)
    settings = ModelSettings(python="fresh_models:fresh", python_folder=tmp_path)
    first, again, other = (build_model(settings, (4,), 3, seed=seed).weights for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    (tmp_path / "model.json").write_text(build_model(settings, (4,), 3).json)
    from_json = build_model(ModelSettings(keras_json=tmp_path / "model.json"), (4,), 3, seed=1)
    np.testing.assert_array_equal(from_json.weights, first)
