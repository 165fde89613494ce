"""Callbacks of `fit` as arguments of `vcdl.train`: settings of the run, or refused with what does the same."""

import inspect
from typing import Any

import keras
import pytest
from keras import callbacks

import vcdl
from vcdl.api.callbacks import stop_settings
from vcdl.errors import JobError

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(
    ("given", "stop"),
    [
        (None, {}),
        ([], {}),
        (callbacks.EarlyStopping(patience=3), {"monitor": "val_loss", "patience": 3}),
        (
            [callbacks.EarlyStopping("val_accuracy", mode="max")],
            {"monitor": "val_accuracy", "patience": 1, "mode": "max"},
        ),
        ([callbacks.TerminateOnNaN()], {}),
    ],
)
def test_what_a_run_has_becomes_its_settings(given: Any, stop: dict[str, Any]) -> None:
    assert stop_settings(given) == stop


class Own(callbacks.Callback):  # type: ignore[misc]
    """Code of the program."""


@pytest.mark.parametrize(
    ("callback", "cure"),
    [
        (
            callbacks.EarlyStopping(restore_best_weights=True),
            r"no restore_best_weights here: leave it out, run.model\(best",
        ),
        (callbacks.EarlyStopping(min_delta=0.1), "no min_delta here: leave it out, any improvement counts"),
        (callbacks.EarlyStopping(baseline=0.5), r"stop={'target': …}"),
        (callbacks.EarlyStopping(start_from_epoch=2), "give a larger patience"),
        (callbacks.EarlyStopping("loss"), "give 'val_loss'"),
        (callbacks.ModelCheckpoint("a.keras"), r"run.model\(best=True\).save"),
        (callbacks.CSVLogger("a.csv"), r"to_csv"),
        (callbacks.TensorBoard(), r"--logdir RUN/tensorboard"),
        (callbacks.LearningRateScheduler(lambda epoch, rate: rate), r"training={'learning_rate'"),
        (callbacks.ReduceLROnPlateau(), r"training={'learning_rate'"),
        (callbacks.BackupAndRestore("a"), r"resume\(\)"),
        (callbacks.LambdaCallback(), r"iterate over run.events"),
        (Own(), r"Own is not supported: .*iterate over run.events"),
        ([callbacks.EarlyStopping(), callbacks.EarlyStopping()], r"EarlyStopping is given twice"),
    ],
)
def test_all_others_are_refused_with_what_does_the_same(callback: Any, cure: str) -> None:
    with pytest.raises(JobError, match=cure) as refused:
        stop_settings(callback)
    assert "\n" not in str(refused.value)


def test_none_of_keras_is_taken_silently() -> None:
    """A setting of a later Keras that EarlyStopping has and we do not look at would be lost."""
    known = "self monitor min_delta patience verbose mode baseline restore_best_weights start_from_epoch"
    assert set(inspect.signature(callbacks.EarlyStopping.__init__).parameters) == set(known.split())


def test_a_setting_is_said_once() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(JobError, match=r"patience and stop={'patience': …} say the same"):
        vcdl.train(model, [[1.0]], [1.0], callbacks=[callbacks.EarlyStopping()], stop={"patience": 2})
