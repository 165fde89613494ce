"""`vcdl check` and a run's preparation agree on every input, good or bad; what check accepts can be trained."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.client.batches import steps_of
from vcdl.client.inputs import read_shard
from vcdl.client.trainer import Trainer
from vcdl.errors import VcdlError
from vcdl.job import load_job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.checking import check_job
from vcdl.run.driver import discard_if_refused
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import LOCAL
from vcdl.run.run import Run
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras

SAMPLES = 60
LABELS = np.arange(SAMPLES) % 3
RNG = np.random.default_rng(0)
X = RNG.random((SAMPLES, 4)).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A job over a small file, and what is said of it; no word: it is in order."""

    word: str = ""
    arrays: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    rest: str = ""
    model: str = "{builtin: {name: mlp, units: [4]}}"


def x(**changed: Any) -> dict[str, Any]:
    return {"x_train": X, "y_train": LABELS, **changed}


def labels(y: Any) -> dict[str, Any]:
    return x(y_train=np.array(y))


def with_value(value: float, dtype: type = np.float64) -> Any:
    changed: Any = X.astype(dtype)
    changed[3, 1] = value
    return changed


def several(**inputs: Any) -> dict[str, Any]:
    return {"y_train": LABELS, **{f"x_train_{name}": array for name, array in inputs.items()}}


def ends(**labels: Any) -> dict[str, Any]:
    return {"x_train": X, **{f"y_train_{name}": array for name, array in labels.items()}}


OUTPUTS = "outputs: [{name: a}, {name: b}]"
OUTPUTS_AC = "outputs: [{name: a}, {name: c}]"
REGRESSION = "task: regression"
TOKENS = RNG.integers(0, 9, (SAMPLES, 6))
EMBEDDING = "{python: 'models_of_test:words'}"
FLAGS = "{python: 'models_of_test:flags'}"
TWO_OUTPUTS = "{python: 'models_of_test:two_outputs'}"
TWO_INPUTS = "{python: 'models_of_test:two_inputs'}"
LOGITS = "{python: 'models_of_test:logits'}"
MODELS = """
import keras
from keras import layers

def flags(shape, outputs):
    ends = [layers.Dense(12), layers.Reshape((6, 2)), layers.Softmax()]
    return keras.Sequential([keras.Input(shape), *ends])

def words(shape, outputs):
    last = layers.Dense(outputs, activation="softmax")
    return keras.Sequential([keras.Input(shape), layers.Embedding(9, 3, name="tokens"), layers.Flatten(), last])

def logits(shape, outputs):
    return keras.Sequential([keras.Input(shape), layers.Dense(outputs)])

def two_inputs():
    inputs = [keras.Input((4,), name="a"), keras.Input((4,), name="b")]
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.Add()(inputs)))

def own():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="softmax")])

def two_outputs():
    inputs = keras.Input((4,))
    return keras.Model(inputs, [layers.Dense(3, activation="softmax", name=name)(inputs) for name in "ab"])

def wide(shape, outputs):
    return keras.Sequential([keras.Input((99,)), layers.Dense(outputs, activation="softmax")])
"""

CASES: dict[str, Case] = {
    # data that no training could use
    "nan": Case("NaN or infinite", x(x_train=with_value(np.nan))),
    "infinity": Case("NaN or infinite", x(x_train=with_value(np.inf, np.float32))),
    "1e300": Case("beyond", x(x_train=with_value(1e300))),
    "nan target": Case("NaN", x(y_train=with_value(np.nan)[:, 1]), REGRESSION),
    "a large number times a small deviation": Case(
        "once they are normalised", x(x_test=with_value(3e38, np.float32), y_test=LABELS, x_train=X * 1e-20)
    ),
    "text in x": Case("expected numbers", x(x_train=np.full((SAMPLES, 4), "a"))),
    "complex x": Case("expected numbers", x(x_train=X.astype(complex))),
    "objects": Case("Python objects", x(x_train=np.array([[None] * 4] * SAMPLES))),
    "dates": Case("expected numbers", x(x_train=np.zeros((SAMPLES, 4), "datetime64[s]"))),
    "flat x": Case("one row for each sample", x(x_train=X[:, 0])),
    "no samples": Case("is empty", x(x_train=X[:0], y_train=LABELS[:0])),
    "one sample": Case("give less", x(x_train=X[:1], y_train=LABELS[:1]), REGRESSION),
    "no columns": Case("is empty", x(x_train=X[:, :0])),
    "lengths differ": Case("the numbers must agree", x(y_train=LABELS[1:])),
    "no y": Case("has no y_train", {"x_train": X}),
    "x_test alone": Case("has no y_test", x(x_test=X)),
    "another shape in the test set": Case("they must agree", x(x_test=X[:, :2], y_test=LABELS)),
    # labels
    "labels 1..3": Case("subtract 1", labels(LABELS + 1)),
    "a stray label": Case("correct it", labels([10**6, *LABELS[1:]])),
    "a label beyond 32 bits": Case("labels are 0, 1", labels([2**40, *LABELS[1:]])),
    "a class without samples": Case("if the others exist", labels(LABELS * 2)),
    "a class only in the test set": Case("nothing can learn it", x(x_test=X, y_test=LABELS + 1)),
    "a class only in the validation set": Case("nothing can learn it", x(x_val=X, y_val=LABELS + 1)),
    "one class": Case("one class only", labels(LABELS * 0)),
    "negative labels": Case("negative label", labels(LABELS - 1)),
    "fractions": Case("not whole numbers", labels(LABELS / 2)),
    "one-hot": Case("argmax", labels(np.eye(3)[LABELS])),
    "a label for each step": Case("expected (samples,)", labels(TOKENS)),
    "text and numbers": Case("same labels", x(y_train=LABELS.astype(str), x_test=X, y_test=LABELS)),
    "a name that is not listed": Case("not in data > classes", labels(LABELS.astype(str)), "classes: [a, b, c]"),
    "too few names": Case("not in data > classes", x(), "classes: [a, b]"),
    "text as numbers": Case("expected numbers", labels(LABELS.astype(str)), REGRESSION),
    # shards and validation
    "more shards than samples": Case("set data > shards to at most 54", x(), "shards: 55"),
    "all samples validate": Case("give less", x(), "validation: 60"),
    "all but one validate": Case("too few for 2 shards", x(), "shards: 2, validation: 59, task: regression"),
    "dirichlet with few samples": Case("set data > shards to at most", x(), "shards: 55, split: dirichlet"),
    # model and training
    "tokens beyond the embedding": Case("knows 0…8", x(x_train=TOKENS + 1), model=EMBEDDING),
    "negative tokens": Case("number the tokens from 0", x(x_train=TOKENS - 1), model=EMBEDDING),
    "fractional tokens": Case("not whole", x(x_train=TOKENS / 2), model=EMBEDDING),
    "scaled tokens": Case("remove it", x(x_train=TOKENS), "normalise: scale", model=EMBEDDING),
    "logits for probabilities": Case("give it softmax", x(), model=LOGITS),
    "probabilities for logits": Case(
        "take from_logits out", x(), rest="training: {loss: {name: sparse_categorical_crossentropy, from_logits: true}}"
    ),
    "one input for two": Case("save x_train_a, x_train_b", x(), model="{python: 'models_of_test:two_inputs'}"),
    "inputs of other names": Case("the data have b, c", several(b=X, c=X), model=TWO_INPUTS),
    "two inputs for one": Case("one input, and the data", several(a=X, b=X), model="{python: 'models_of_test:own'}"),
    "two inputs for a built-in": Case("give a model of your own", several(a=X, b=X)),
    "an input of another shape": Case("as b, the data has", several(a=X, b=X[:, :2]), model=TWO_INPUTS),
    "inputs of other lengths": Case("the numbers must agree", several(a=X, b=X[:9]), model=TWO_INPUTS),
    "one input and several": Case("the data have one: save", {**x(), "x_train_a": X}, model=TWO_INPUTS),
    "several inputs": Case("", several(a=X, b=with_value(300, np.float32)), model=TWO_INPUTS),
    "two outputs that nobody names": Case("say in data > outputs", x(), model=TWO_OUTPUTS),
    "outputs of other names": Case("give both the same names", ends(a=LABELS, c=LABELS), OUTPUTS_AC, model=TWO_OUTPUTS),
    "an output without labels": Case("has no y_train_b", ends(a=LABELS), OUTPUTS, model=TWO_OUTPUTS),
    "one output": Case("is for several outputs", x(), "outputs: [{name: a}]"),
    "an output twice": Case("named once", x(), "outputs: [{name: a}, {name: a}]"),
    "a task beside outputs": Case("set by data > outputs alone", x(), "task: regression, " + OUTPUTS),
    "several without outputs": Case("set by data > outputs alone", x(), "task: several"),
    "a loss beside outputs": Case("move it there", ends(a=LABELS, b=LABELS), OUTPUTS, "training: {loss: mse}"),
    "two outputs for a built-in": Case("give a model of your own", ends(a=LABELS, b=LABELS), OUTPUTS),
    "an output's loss for numbers": Case(
        "output b: training > loss", ends(a=LABELS, b=LABELS), OUTPUTS.replace("b}", "b, loss: mse}"), model=TWO_OUTPUTS
    ),
    "an output's labels": Case("output b: y_train holds", ends(a=LABELS, b=LABELS + 1), OUTPUTS, model=TWO_OUTPUTS),
    "an output's metric": Case(
        "did you mean", ends(a=LABELS, b=LABELS), OUTPUTS.replace("b}", "b, metrics: [auk]}"), model=TWO_OUTPUTS
    ),
    "a monitor of another output": Case(
        "is not measured", ends(a=LABELS, b=LABELS), OUTPUTS, "stop: {monitor: c_accuracy}", model=TWO_OUTPUTS
    ),
    "an array of a similar name": Case("", {**x(), "x_train_raw": X}),
    "an output of another shape in the test set": Case(
        "they must agree",
        ends(a=LABELS, b=X[:, :1]) | {"x_test": X, "y_test_a": LABELS, "y_test_b": X[:, :2]},
        OUTPUTS.replace("b}", "b, task: regression}"),
        model=TWO_OUTPUTS,
    ),
    "several outputs": Case("", ends(a=LABELS, b=LABELS), OUTPUTS, model=TWO_OUTPUTS),
    "another input": Case("begin the model with", x(), model="{python: 'models_of_test:wide'}"),
    "a module that is not there": Case("there is no module", x(), model="{python: 'not_there:build'}"),
    "an image model for a table": Case("use mlp", x(), model="{builtin: small_cnn}"),
    "a loss for numbers": Case("use sparse_categorical_crossentropy", x(), rest="training: {loss: mse}"),
    "an unknown optimizer": Case("did you mean", x(), rest="training: {optimizer: adamm}"),
    "an unknown metric": Case("did you mean", x(), rest="training: {metrics: [acuracy]}"),
    # tasks
    "steps for a built-in model": Case("give a model of your own", labels(TOKENS), "task: sequence"),
    "an autoencoder of images by small_cnn": Case("its input", x(), "task: autoencoder", model="{builtin: small_cnn}"),
    "labels for several flags": Case("other numbers than 0 and 1", labels(TOKENS), "task: multi_label"),
    "a missing flag": Case("end the model in", labels(np.where(TOKENS > 4, 1, -1)), "task: multi_label"),
    "a flag that is NaN": Case("end the model in", labels(np.where(TOKENS > 4, 1, np.nan)), "task: multi_label"),
    "flags as a sequence with missing ones": Case(
        "", labels(np.where(TOKENS > 4, 1, np.where(TOKENS > 2, 0, -1))), "task: sequence, mask: -1", model=FLAGS
    ),
    "a sparse matrix": Case("x_train=matrix.toarray()", {"indptr": np.ones(2), "data": np.ones(3)}),
    "one flag": Case("(samples, labels)", x(), "task: multi_label"),
    "names for other flags": Case("data > classes says 2", labels(TOKENS > 4), "task: multi_label, classes: [a, b]"),
    "nothing but padding": Case(
        "nothing to learn", x(x_train=TOKENS, y_train=TOKENS * 0), "task: sequence, mask: 0", model=EMBEDDING
    ),
    "a weight short": Case("weight_train has shape", x(weight_train=np.ones(3))),
    "negative weights": Case("expected finite numbers ≥ 0", x(weight_train=-np.ones(SAMPLES))),
    "a weight for no class": Case("is no class of the data", x(), rest="training: {class_weight: {cat: 2}}"),
    "class weights of numbers": Case(
        "for data > task: classification", x(y_train=X[:, 0]), REGRESSION, "training: {class_weight: balanced}"
    ),
    # in order
    "several labels": Case("", labels(TOKENS > 4), "task: multi_label"),
    "an autoencoder of images": Case("", {"x_train": RNG.random((SAMPLES, 3, 3))}, "task: autoencoder"),
    "weights of samples and classes": Case(
        "", x(weight_train=np.arange(SAMPLES)), rest="training: {class_weight: {1: 0.5}}"
    ),
    "plain": Case("", x()),
    "text labels": Case("", labels(np.array(["a", "b", "c"])[LABELS])),
    "labels 1..3 that are listed": Case("", labels(LABELS + 1), "classes: [1, 2, 3]"),
    "a class with one sample": Case("", labels([3, *LABELS[1:]])),
    "a class with one sample in many shards": Case("", labels([3, *LABELS[1:]]), "shards: 50"),
    "as many shards as samples": Case("", x(), "shards: 54"),
    "dirichlet with a shard a sample": Case("", x(), "shards: 54, split: dirichlet"),
    "two samples": Case("", x(x_train=X[:3], y_train=LABELS[:3]), "validation: 1, task: regression"),
    "constant inputs": Case("", x(x_train=X * 0 + 0.1), "normalise: standardise"),
    "the largest float32": Case("", x(x_train=with_value(3.4e38, np.float32))),
    "tokens": Case("", x(x_train=TOKENS), model=EMBEDDING),
    "tokens as floats": Case("", x(x_train=TOKENS.astype(float)), model=EMBEDDING),
    "whole numbers of 64 bits": Case("", x(x_train=np.full((SAMPLES, 4), 2**60) + LABELS[:, None])),
}


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    (tmp_path / "models_of_test.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("models_of_test", None)


def job_file(folder: Path, case: Case) -> Path:
    np.savez(folder / "d.npz", **case.arrays, allow_pickle=True)
    path = folder / "job.yaml"
    data = f"{{npz: d.npz, {case.data}}}" if case.data else "{npz: d.npz}"
    path.write_text(f"name: a\nmodel: {case.model}\ndata: {data}\n{case.rest}\n")
    return path


def prepared(path: Path) -> RunFolder:
    """What `vcdl run` does up to its first subtask."""
    job = load_job(path).trusting(LOCAL.trust)
    folder = RunFolder(path.parent / "run")
    folder.make()
    with discard_if_refused(folder, is_new=True):
        folder.create(LOCAL)
        prepare(folder, freeze(job, folder), RunObserver())
    return folder


def refusal(act: Callable[[], Any]) -> str:
    try:
        act()
    except VcdlError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.word])
def test_what_check_refuses_a_run_refuses_with_the_same_line(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = job_file(tmp_path, case)
    before = {entry.name for entry in tmp_path.iterdir()}
    checked = refusal(lambda: check_job(path))
    assert case.word in checked
    assert "\n" not in checked
    assert refusal(lambda: prepared(path)) == checked
    assert {entry.name for entry in tmp_path.iterdir()} - {"__pycache__"} == before, "nothing is left behind"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.word])
def test_what_check_accepts_begins(name: str, tmp_path: Path) -> None:
    path = job_file(tmp_path, CASES[name])
    checked = check_job(path)
    folder = prepared(path)
    job = load_job(folder.job_file)
    assert checked.shards == job.data.shards == len(list(folder.shards.glob("shard_*.npz")))
    run = Run.open(folder)
    training = run.training
    trainer = Trainer(folder.read_model_json(), training)
    vector, _ = read_weights(folder.snapshot(0), run.layout.size)
    (tmp_path / "shard.npz").write_bytes(run.shard_files[0].read_bytes())
    outputs = [output.name for output in training.outputs]
    shard = read_shard(tmp_path, training.normalisation, trainer.input_shapes, outputs)
    trainer.begin(vector, 1, training.learning_rate, steps_of(len(shard), training.batch_size))
    losses = trainer.steps(shard.x, shard.y, np.arange(len(shard)), training.batch_size)
    assert np.isfinite(losses).all()
