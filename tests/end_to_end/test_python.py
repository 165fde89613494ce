"""The Python API with real processes: a model and arrays become a run, which ends, fails, pauses and continues."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vcdl
from tests.end_to_end.vcdl_process import applied, environment, kill, summary, wait_until
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunState, read_report, state_of

SAMPLES, EPOCHS, SHARDS = 400, 3, 4
pytestmark = [pytest.mark.process, pytest.mark.keras]
"""`vcdl.train` is found by its name only when it is asked for."""

PROGRAM = """
import keras, numpy as np, sys, vcdl
x = np.random.default_rng(1).normal(size=(400, 6))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2, activation="softmax")])
run = vcdl.train(model, x, y, epochs=500, shards=4, workers=1, out=sys.argv[1])
print("begun", flush=True)
run.wait()
"""


def given() -> dict[str, object]:
    """A model and data that two clients learn in seconds."""
    import keras

    keras.utils.set_random_seed(1)
    x = np.random.default_rng(1).normal(size=(SAMPLES, 6))
    y = (x[:, 0] + x[:, 1] > 0).astype(int)
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2, activation="softmax")])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return {"model": model, "x": x, "y": y, "shards": SHARDS, "epochs": EPOCHS, "workers": 1, "show": False}


def test_a_model_and_arrays_become_a_trained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = given()
    x, y = np.asarray(arguments["x"]), np.asarray(arguments["y"])
    run = vcdl.train(**arguments, test_data=(x, y), out=tmp_path / "run")  # type: ignore[call-overload]
    run.wait()
    assert "all epochs are done" in capsys.readouterr().out
    assert run.status is RunState.FINISHED
    assert run.history.epoch == [0, 1, 2]
    assert {name: len(values) for name, values in run.history.history.items()}["val_accuracy"] == EPOCHS
    updates = [event for event in run.events() if isinstance(event, vcdl.events.UpdateApplied)]
    assert len(updates) == EPOCHS * SHARDS
    model = run.model()
    _, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy == pytest.approx(run.summary["accuracy"]["test"], abs=1e-6)
    assert accuracy > 0.8
    assert [layer.name for layer in model.layers] == [layer.name for layer in arguments["model"].layers]  # type: ignore[attr-defined]
    assert run.summary == summary(run.folder)


def attending(rng: np.random.Generator) -> tuple[object, np.ndarray, np.ndarray]:
    """A model with masks, attention, a residual sum and operations, and padded sequences that it can learn."""
    import keras
    from keras import layers, ops

    x = rng.integers(1, 9, (SAMPLES, 8))
    x[np.arange(8) >= rng.integers(3, 9, SAMPLES)[:, None]] = 0
    inputs = keras.Input((8,), dtype="int32")
    words = layers.Embedding(9, 8, mask_zero=True)(inputs)
    hidden = layers.LayerNormalization()(words + layers.MultiHeadAttention(2, 4)(words, words))
    seen = ops.cast(ops.expand_dims(ops.not_equal(inputs, 0), -1), "float32")
    both = ops.concatenate([ops.mean(hidden * seen, axis=1), layers.GRU(4)(words)], axis=-1)
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(both))
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, x, (x == 1).any(axis=1).astype(int)


@pytest.mark.nightly
def test_a_model_with_masks_and_operations_reaches_what_fit_reaches(tmp_path: Path) -> None:
    import keras

    keras.utils.set_random_seed(1)
    model, x, y = attending(np.random.default_rng(1))
    run = vcdl.train(model, x, y, epochs=12, shards=SHARDS, workers=1, out=tmp_path / "run", show=False)
    run.wait(show=False)
    fitted = keras.models.clone_model(model)
    fitted.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    fitted.fit(x, y, epochs=12, batch_size=16, verbose=0)
    accuracies = [each.evaluate(x, y, verbose=0)[1] for each in (run.model(), fitted)]
    assert accuracies[0] > max(0.9, accuracies[1] - 0.05), accuracies


@pytest.mark.nightly
def test_a_table_behind_an_adapted_normalization_is_learned_as_by_fit(tmp_path: Path) -> None:
    import keras
    from keras import layers

    rng = np.random.default_rng(4)
    x = (rng.normal(size=(1000, 4)) * np.geomspace(1, 1000, 4) + [3, -20, 400, 5000]).astype(np.float32)
    y = (((x - x.mean(0)) / x.std(0)) @ [1.0, -2, 0.5, 1.5] + 3).astype(np.float32)

    def model() -> keras.Model:
        keras.utils.set_random_seed(2)
        scaling = layers.Normalization()
        scaling.adapt(x)
        model = keras.Sequential([keras.Input((4,)), scaling, layers.Dense(16, activation="relu"), layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mean_squared_error")
        return model

    serial = model()
    serial.fit(x[:800], y[:800], epochs=10, batch_size=32, verbose=0)
    by_fit = serial.evaluate(x[800:], y[800:], verbose=0)
    run = vcdl.train(
        model(), x[:800], y[:800], validation_data=(x[800:], y[800:]), epochs=10, shards=4, workers=2, batch_size=32,
        out=tmp_path / "run", show=False,
    )  # fmt: skip
    run.wait(show=False)
    ours, _ = run.model().evaluate(x[800:], y[800:], verbose=0)
    assert ours == pytest.approx(run.summary["metrics"]["validation"]["loss"], rel=1e-3)
    assert ours < max(3 * by_fit, 0.05 * y.var())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
def test_a_program_that_ends_leaves_a_run_that_is_paused(tmp_path: Path, is_killed: bool) -> None:
    program = PROGRAM if is_killed else PROGRAM.replace("run.wait()", "")
    folder = RunFolder(tmp_path / "run")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    if is_killed:
        wait_until(lambda: applied(folder.path), "something is trained")
        kill(process.pid)
    _, errors = process.communicate(timeout=120)
    if not is_killed:
        assert "the program ends, so its run in" in errors
    wait_until(lambda: folder.running_pid is None, "the child has gone")
    assert state_of(folder, read_report(folder)) is RunState.PAUSED
