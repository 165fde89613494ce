"""A job's own code: what of a folder travels, who runs it, and that a model is the same wherever it is made."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.places import EXAMPLES
from vcdl.client import own_code
from vcdl.client.model import load_model
from vcdl.client.own_code import MOST_BYTES, MOST_FILES, OwnCode
from vcdl.client.trainer import Trainer
from vcdl.errors import JobError, ModelError
from vcdl.job import load_job
from vcdl.job.code_folder import read_code
from vcdl.job.model import ModelSettings
from vcdl.models.build import build_model
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import BOINC, LOCAL, POOL, SIMULATED
from vcdl.wire.workunit import Named, Training

OWN = EXAMPLES / "own_code"
MODEL = '{"module": "mine", "class_name": "Mine", "config": {}, "registered_name": "Mine"}'


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has run no code of a job, and forgets it afterwards."""
    monkeypatch.setattr(own_code, "_is_permitted", False)
    monkeypatch.setattr(own_code, "_loaded", None)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if own_code._loaded is not None and own_code._loaded.code.brings(name):
            del sys.modules[name]


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_the_same_modules_are_the_same_code_and_nothing_else_travels(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a", mine="x = 1\n", other="y = 2\n"), tmp_path / "b"
    written(second, other="y = 2\n", mine="x = 1\n")
    for name in (".env", ".hidden.py", "job.yaml", "notes.txt", "not-a-module.py"):
        (second / name).write_text("password = 1")
    for folder in (".git", "__pycache__", "not-a-package"):
        written(second / folder, within="z = 3\n")
    (second / "link.py").symlink_to("/etc/hostname")
    os.utime(second / "mine.py", (1, 1))
    assert read_code(first) == read_code(second)
    assert read_code(first).sha256 == read_code(second).sha256
    assert list(read_code(second).files) == ["mine.py", "other.py"]
    written(second / "nets", blocks="")
    assert read_code(second).modules == {"mine": "mine.py", "other": "other.py", "nets.blocks": "nets/blocks.py"}
    assert read_code(second).sha256 != read_code(first).sha256


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no Python file"),
        ({"large": "#" * MOST_BYTES + "\n"}, "holds more than"),
        ({f"m{number}": "" for number in range(MOST_FILES + 1)}, "holds more than"),
        ({"random": ""}, "random.py has the name of a module of Python, random: rename it"),
    ],
    ids=["none", "large", "many", "of Python"],
)
def test_a_folder_that_cannot_travel_is_refused(files: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        read_code(written(tmp_path / "code", **files))


def test_no_process_runs_code_that_it_was_not_told_to(tmp_path: Path) -> None:
    text = OwnCode({"mine.py": f"open({str(tmp_path / 'ran')!r}, 'w')"}).with_model(MODEL)
    with pytest.raises(ModelError, match="the job has its own code, and this process may not run it: only workers of"):
        load_model(text)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(
        ModelError, match=r"not part of Keras, and clients do not run code.* or let `model > code` send your class"
    ):
        load_model(MODEL)


@pytest.mark.parametrize("path", ["../mine.py", "/mine.py", "a/../mine.py", "mine.txt", "a\\mine.py", "mine"])
def test_code_that_was_changed_or_leads_out_is_refused(path: str) -> None:
    own_code.permit()
    raw = json.loads(OwnCode({"mine.py": "x = 1"}).with_model(MODEL))
    raw["own_code"]["files"]["mine.py"] = "x = 2"
    with pytest.raises(ModelError, match="does not match its checksum"):
        load_model(json.dumps(raw))
    with pytest.raises(ModelError, match="does not match its checksum"):
        load_model(OwnCode({path: "x = 1"}).with_model(MODEL))


@pytest.mark.keras
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import keras\ndef build(:", r"mine.py:2: .*SyntaxError"),
        ("1 / 0", r"mine.py:1: .*ZeroDivisionError"),
        ("def build():\n    raise ValueError('too few units')", r"mine.py:2: .*ValueError: too few units"),
        ("from other import build", r"mine.py:1: .*No module named 'other'"),
        (
            "import keras\nclass Mine(keras.Model):\n"
            "    def __init__(self, units, **kwargs):\n        super().__init__(**kwargs)\n"
            "        self.dense = keras.layers.Dense(units)\n"
            "    def call(self, x):\n        return self.dense(x)\ndef build():\n    return Mine(3)",
            r"Mine takes units, and without get_config Keras recreates it with their defaults",
        ),
        pytest.param(
            "import keras\nclass Mine(keras.Model):\n"
            "    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n"
            "        self.dense = keras.layers.Dense(3)\n"
            "    def call(self, x):\n        return self.dense(x)\n"
            "def build(shape, outputs):\n    model = Mine()\n    model.build((None, *shape))\n    return model",
            r"call the model once instead, model\(keras.ops.zeros\(\(1, \*input_shape\)\)\)",
            marks=pytest.mark.filterwarnings("ignore:.*was called on layer"),
        ),
    ],
    ids=["syntax", "import", "function", "missing module", "lost arguments", "no weights"],
)
def test_faults_of_the_code_are_told_with_file_and_line(text: str, words: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "code", mine=text)
    with pytest.raises(ModelError, match=words):
        build_model(ModelSettings(python="mine:build", code=folder), (4,), 3)


@pytest.mark.keras
def test_a_subclassed_model_is_the_same_wherever_it_is_made_and_learns_by_its_own_step() -> None:
    import keras

    built = build_model(ModelSettings(python="vae:build", code=OWN), (8, 8, 1), 10, seed=3)
    training = Training(Named("adam"), 0.003, 16, 1, Named("sparse_categorical_crossentropy"))
    trainer = Trainer(built.json, training)
    keras.layers.Dense(1)  # takes the first name that Keras gives
    assert Trainer(built.json, training).layout.fingerprint == trainer.layout.fingerprint
    x = np.random.default_rng(1).uniform(size=(64, 8, 8, 1)).astype(np.float32)
    losses = []
    for _ in range(2):
        trainer.begin(trainer.with_moments(built.weights), 5, 0.003, 12)
        losses.append(trainer.steps(x, np.zeros(64, np.int32), np.arange(64 * 3) % 64, 16))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def job_with(tmp_path: Path, **settings: str) -> Any:
    (tmp_path / "job.yaml").write_text(
        f"name: own\nmodel: {{python: 'vae:build', code: {OWN}}}\ndata: {{dataset: digits}}\n"
    )
    return load_job(tmp_path / "job.yaml", [f"{key}={value}" for key, value in settings.items()])


@pytest.mark.parametrize(
    ("kind", "trust", "words"),
    [
        (LOCAL, "auto", ""),
        (POOL, "own", ""),
        (POOL, "strangers", "`vcdl pool` does not run a job's own code: only your own machines"),
        (BOINC, "own", "`vcdl submit` does not run"),
        (SIMULATED, "own", "`vcdl simulate` does not run"),
    ],
    ids=lambda given: getattr(given, "name", given),
)
def test_code_goes_to_machines_of_ones_own_only(kind: Any, trust: str, words: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(kind)
    job = job_with(tmp_path, trust=trust).trusting(kind.trust)
    if not words:
        assert freeze(job, folder).model.code == OWN
        return
    with pytest.raises(JobError, match=words):
        freeze(job, folder)


DERIVING = """
import keras, numpy as np
class Shifted(keras.Layer):
    def build(self, shape):
        self.shift = self.add_weight(shape=(), name="shift", trainable=False)
        self.offset = 0.0
    def adapt(self, x):
        self.shift.assign(np.mean(x))
        self.{method}({argument})
    def call(self, x):
        return x - self.offset
    {more}
def build():
    layer = Shifted(trainable=False)
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(3)])
    layer.adapt(np.full((2, 4), 7.0))
    return model
"""
FINALIZES = (
    "def finalize_state(self):\n        self.offset = keras.ops.convert_to_numpy(self.shift)\n"
    "    def load_own_variables(self, store):\n        super().load_own_variables(store)\n        self.finalize_state()"
)
LOADS = (
    "def load_own_variables(self, store):\n        super().load_own_variables(store)\n"
    "        self.offset = keras.ops.convert_to_numpy(self.shift)"
)


@pytest.mark.keras
@pytest.mark.parametrize(
    ("method", "argument", "more"),
    [("finalize_state", "", FINALIZES), ("load_own_variables", "{'0': self.shift}", LOADS)],
)
def test_a_layer_that_derives_something_from_its_weights_does_so_on_clients(
    method: str, argument: str, more: str, tmp_path: Path
) -> None:
    text = DERIVING.format(method=method, argument=argument, more=more)
    built = build_model(ModelSettings(python="mine:build", code=written(tmp_path / "code", mine=text)), (4,), 3)
    client = load_model(built.json, built.frozen)
    np.testing.assert_allclose(client.layers[0](np.full((1, 4), 9.0)), np.full((1, 4), 2.0))
