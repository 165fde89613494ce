"""The page of Keras' features: each row names a test that is there, and each recipe predicts what the model does."""

import ast
import importlib.util
import re
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.places import DOCS, ROOT
from vcdl.job import Job, save_job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.export import export_model
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import read_weights

pytestmark = [pytest.mark.keras, pytest.mark.process]

PAGE = (DOCS / "keras-features.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ") and "`tests/" in line]
RECIPES = {
    title.strip(): re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for title, text in re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
NEEDS = {
    "ONNX": ("tf2onnx", "onnxruntime"),
    "LiteRT": ("ai_edge_litert",),
    "OpenVINO": ("openvino",),
    "SavedModel": ("tensorflow",),
}
DIFFERS = {"int8": 0.05, "OpenVINO": 0.01}
"""The most by which a probability may differ; OpenVINO computes with 16 bits where a processor can."""
DIGITS = np.random.default_rng(1).integers(17, size=(20, 8, 8, 1)).astype(np.float32)


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip() for row in ROWS])
def test_the_test_of_each_row_is_there(row: list[str]) -> None:
    file, _, name = row[-1].strip().strip("`").partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_page_has_all_rows() -> None:
    assert len(ROWS) >= 40


def run_of(folder: RunFolder, **model: Any) -> RunFolder:
    """A run that has ended with random weights."""
    folder.create()
    data = {"dataset": "digits", "shards": 2, "normalise": "none"}
    job = Job.model_validate({"name": "next", "model": model, "data": data})
    save_job(job, folder.job_file)
    run: Run = prepare(folder, job, RunObserver())
    vector, text = read_weights(folder.snapshot(0), run.layout.size)
    vector[: run.layout.model.size] = np.random.default_rng(3).normal(size=run.layout.model.size) / 10
    write_params(folder.snapshot(7), vector, ParamsHeader.from_json(text))
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and what a run that adapted its hidden layer exports."""
    folder = tmp_path_factory.mktemp("exported")
    keras.utils.set_random_seed(2)
    ends = [layers.Dense(12, activation="relu", name="hidden"), layers.Dense(10, activation="softmax", name="head")]
    keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3), layers.Flatten(), *ends]).save(
        folder / "given.keras"
    )
    lora = {"rank": 2, "layers": ["hidden"]}
    run = run_of(RunFolder(folder / "run"), keras=folder / "given.keras", train=["head"], lora=lora)
    for name in ("model.keras", "mine.weights.h5", "adapters.npz"):
        export_model(run, folder / name)
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapters.npz", "given.keras", "mine.weights.h5", "model.keras", "run",
    ]  # fmt: skip
    return folder


def told(model: Any) -> Any:
    return model.predict(DIGITS, verbose=0)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", [title for title, blocks in RECIPES.items() if blocks])
def test_each_recipe_predicts_what_the_model_does(title: str, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(title, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: it is no dependency of vcdl, not even in development")
    monkeypatch.chdir(exported)
    names: dict[str, Any] = {"x": DIGITS}
    (recipe,) = RECIPES[title]
    exec(recipe, names)
    expected = told(keras.models.load_model("model.keras"))
    assert np.abs(expected - told(keras.models.load_model("given.keras"))).max() > 0.1, "or nothing was exported"
    np.testing.assert_allclose(names["predictions"], expected, atol=DIFFERS.get(title, 1e-5))


def test_the_weights_alone_are_those_of_the_given_model(exported: Path) -> None:
    model = keras.models.load_model(exported / "given.keras")
    with warnings.catch_warnings(action="error"):
        model.load_weights(exported / "mine.weights.h5")
    np.testing.assert_allclose(told(model), told(keras.models.load_model(exported / "model.keras")), atol=1e-5)
