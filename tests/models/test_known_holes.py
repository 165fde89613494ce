"""The known ways in which a file of Keras ran code or read other files, each by the doors that a submitter has.

Keras has mended these in its versions of today; here none reaches Keras, whose older versions may be installed.
"""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from vcdl.errors import ModelError
from vcdl.job.model import ModelSettings
from vcdl.models import given_weights
from vcdl.models.build import build_model
from vcdl.wire.workunit import Named

pytestmark = pytest.mark.keras

INPUT: dict[str, Any] = {
    "module": "keras.layers",
    "class_name": "InputLayer",
    "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "i"},
    "registered_name": None,
    "name": "i",
    "inbound_nodes": [],
}
MLP = Named("mlp", {"units": [6], "dropout": 0.0})


def _calling(name: str, module: str, *arguments: Any, class_name: str = "function") -> dict[str, Any]:
    """A layer that is a function, which Keras calls with these arguments when it connects the layers."""
    return {
        "module": module,
        "class_name": class_name,
        "config": name if class_name == "function" else {"name": name},
        "registered_name": name,
        "name": name,
        "inbound_nodes": [{"args": [*arguments], "kwargs": {}}],
    }


def _lambda(ran: Path) -> dict[str, Any]:
    """A Lambda layer whose function leaves a mark."""
    code = keras.layers.Lambda(eval(f"lambda x: open({str(ran)!r}, 'w') and x")).get_config()["function"]
    return {"module": "keras.layers", "class_name": "Lambda", "config": {"name": "evil", "function": code}}


def _model(*layers: dict[str, Any]) -> dict[str, Any]:
    config = {"name": "m", "layers": [INPUT, *layers], "input_layers": [["i", 0, 0]], "output_layers": [["i", 0, 0]]}
    return {"module": "keras", "class_name": "Functional", "config": config, "registered_name": "Functional"}


HOLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "CVE-2025-1550: a function of any module": lambda ran: _model(_calling("Popen", "subprocess", ["touch", str(ran)])),
    "CVE-2025-1550: a class of any module": lambda ran: _model(
        _calling("Popen", "subprocess", ["touch", str(ran)], class_name="Popen")
    ),
    "CVE-2025-8747: a file is fetched": lambda ran: _model(
        _calling("get_file", "keras.utils", ran.name, f"file://{__file__}")
    ),
    "CVE-2025-8747: a picture is written": lambda ran: _model(_calling("save_img", "keras.utils", str(ran), [[[0]]])),
    "CVE-2025-8747: by its inner name": lambda ran: _model(
        _calling("get_file", "keras.src.utils.file_utils", ran.name, f"file://{__file__}")
    ),
    "CVE-2025-9906: unsafe mode first, then code": lambda ran: _model(
        _calling("enable_unsafe_deserialization", "keras.config"), _lambda(ran)
    ),
    "CVE-2025-9906: by its inner name": lambda ran: _model(
        _calling("enable_unsafe_deserialization", "keras.src.saving.serialization_lib"), _lambda(ran)
    ),
}


def _refused(settings: ModelSettings) -> str:
    with pytest.raises(ModelError) as refused:
        build_model(settings, (4,), 3)
    assert keras.src.saving.serialization_lib.in_safe_mode() is None, "something has changed Keras' own setting"
    return str(refused.value)


@pytest.mark.parametrize("door", ["keras_json", "keras"])
@pytest.mark.parametrize("hole", HOLES)
def test_a_known_hole_of_keras_is_closed(hole: str, door: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    text = json.dumps(HOLES[hole](ran))
    path = tmp_path / ("m.json" if door == "keras_json" else "m.keras")
    if door == "keras_json":
        path.write_text(text)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", text)
            archive.writestr("metadata.json", json.dumps({"keras_version": keras.__version__}))
            archive.writestr("model.weights.h5", b"")
    settings = ModelSettings(keras_json=path) if door == "keras_json" else ModelSettings(keras=path)
    assert "function" in (words := _refused(settings)) or "not part of Keras" in words
    assert not ran.exists()


def _legacy(path: Path, ran: Path) -> None:
    """A whole model as Keras 2 wrote it, whose configuration holds code: CVE-2025-9905."""
    model = {"class_name": "Sequential", "config": {"name": "s", "layers": [INPUT, _lambda(ran)]}}
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.15.0", "tensorflow"
        file.attrs["model_config"] = json.dumps(model)
        file.create_group("model_weights").attrs["layer_names"] = []


def test_a_legacy_file_with_code_is_no_file_of_a_model(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("m.h5", "m.hdf5"):
        _legacy(tmp_path / name, ran)
        with pytest.raises(ValueError, match=r"expected a \.keras file"):
            ModelSettings(keras=tmp_path / name)
        with pytest.raises(ValueError, match="expected a file that ends in"):
            ModelSettings(builtin=MLP, weights=tmp_path / name)
    _legacy(tmp_path / "m.keras", ran)
    assert "not a whole .keras file" in _refused(ModelSettings(keras=tmp_path / "m.keras"))
    _legacy(tmp_path / "m.weights.h5", ran)
    assert "m.weights.h5" in _refused(ModelSettings(builtin=MLP, weights=tmp_path / "m.weights.h5"))
    assert not ran.exists()


def _external(parent: Any, folder: Path) -> None:
    parent.create_dataset("0", (4, 6), "f4", external=[(str(folder / "secret.bin"), 0, 96)])


def _linked(parent: Any, folder: Path) -> None:
    parent["0"] = h5py.ExternalLink(str(folder / "secret.h5"), "/k")


def _soft(parent: Any, folder: Path) -> None:
    parent["0"] = h5py.SoftLink(f"{parent.name}/1")


def _virtual(parent: Any, folder: Path) -> None:
    sources = h5py.VirtualLayout((4, 6), "f4")
    sources[:] = h5py.VirtualSource(str(folder / "secret.h5"), "k", (4, 6))
    parent.create_virtual_dataset("0", sources)


def _whole_group(parent: Any, folder: Path) -> None:
    file, name = parent.file, parent.parent.name
    del file[name]
    file[name] = h5py.ExternalLink(str(folder / "secret.h5"), "/")


@pytest.mark.parametrize("form", ["m.weights.h5", "m.keras"])
@pytest.mark.parametrize("lead_out", [_external, _linked, _soft, _virtual, _whole_group])
def test_weights_from_another_file_are_refused_before_keras_reads_them(
    form: str, lead_out: Callable[[Any, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(ModelSettings(builtin=MLP), (4,), 3)
    secret = np.arange(24, dtype="f4").reshape(4, 6)
    (tmp_path / "secret.bin").write_bytes(secret.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["k"] = secret
        file["vars/0"], file["vars/1"] = secret, np.zeros(6, "f4")
    loaded = keras.saving.deserialize_keras_object(json.loads(model.json))
    loaded.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "r+") as file:
        parent = next(group["vars"] for group in file["layers"].values() if "0" in group.get("vars", ()))
        del parent["0"]
        lead_out(parent, tmp_path)
    if form == "m.keras":
        loaded.save(tmp_path / form)
        with zipfile.ZipFile(tmp_path / form) as archive:
            config = archive.read("config.json")
        with zipfile.ZipFile(tmp_path / form, "w") as archive:
            archive.writestr("config.json", config)
            archive.write(tmp_path / "m.weights.h5", "model.weights.h5")
    monkeypatch.setattr(keras.Model, "load_weights", lambda *_: pytest.fail("Keras has read it"))
    with pytest.raises(ModelError, match="leads out of the file"):
        given_weights.load_given_weights(loaded, tmp_path / form)


def test_no_pickle_is_read_from_an_npz(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str, str]]:
            return open, (str(tmp_path / "ran"), "w")

    assert pickle.dumps(Evil())
    np.savez(tmp_path / "m.npz", np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError):
        build_model(ModelSettings(builtin=MLP, weights=tmp_path / "m.npz"), (4,), 3)
    assert not (tmp_path / "ran").exists()
