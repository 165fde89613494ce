"""What a model with several outputs was compiled with, as `data > outputs`."""

from typing import Any

import keras
import numpy as np
import pytest

from vcdl.api.outputs import outputs_of
from vcdl.errors import JobError

pytestmark = pytest.mark.keras

KIND, SIZE = np.eye(3)[np.arange(6) % 3], np.linspace(0, 1, 6)


def compiled(**arguments: Any) -> Any:
    table = keras.Input((2,))
    ends = [keras.layers.Dense(3, activation="softmax", name="kind")(table), keras.layers.Dense(1, name="size")(table)]
    model = keras.Model(table, ends)
    model.compile("adam", **arguments)
    return model


def arrays() -> dict[str, Any]:
    return {"x_train": np.zeros((6, 2)), "y_train_kind": KIND, "y_train_size": SIZE, "y_val_kind": KIND[:2]}


@pytest.mark.parametrize(
    "arguments",
    [
        {
            "loss": {"kind": "categorical_crossentropy", "size": keras.losses.Huber(delta=2.0)},
            "metrics": {"kind": ["categorical_accuracy"], "size": "mae"},
            "loss_weights": {"kind": 1.0, "size": 0.5},
        },
        {
            "loss": ["categorical_crossentropy", keras.losses.Huber(delta=2.0)],
            "metrics": [["categorical_accuracy"], ["mae"]],
            "loss_weights": [1.0, 0.5],
        },
    ],
    ids=["by name", "in order"],
)
def test_each_output_keeps_its_loss_metrics_and_weight(arguments: dict[str, Any]) -> None:
    given, huber = arrays(), {"name": "huber", "delta": 2.0}
    assert outputs_of(compiled(**arguments), given) == [
        {
            "name": "kind",
            "task": "classification",
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["sparse_categorical_accuracy"],
            "weight": 1.0,
        },
        {"name": "size", "task": "regression", "loss": huber, "metrics": ["mae"], "weight": 0.5},
    ]
    assert given["y_train_kind"].tolist() == [0, 1, 2, 0, 1, 2], "one-hot labels become numbers"
    assert given["y_val_kind"].tolist() == [0, 1]
    assert given["y_train_size"] is SIZE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "compile it with a loss for each"),
        ({"loss": {"kind": "mse"}}, "without a loss for its output size"),
        ({"loss": "mse", "metrics": ["mae", "mse", "mape"]}, "metrics for another number of outputs"),
    ],
)
def test_what_does_not_say_what_each_output_learns_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        outputs_of(compiled(**arguments), arrays())


def test_one_loss_is_that_of_every_output() -> None:
    outputs = outputs_of(compiled(loss="mse"), arrays())
    assert [(output["name"], output["task"], output["loss"]) for output in outputs] == [
        ("kind", "regression", "mse"),
        ("size", "regression", "mse"),
    ]


def test_an_output_whose_name_ends_another_keeps_its_own_labels() -> None:
    table = keras.Input((2,))
    ends = [keras.layers.Dense(3, activation="softmax", name=name)(table) for name in ("kind", "sub_kind")]
    model = keras.Model(table, ends)
    model.compile("adam", loss="categorical_crossentropy")
    given = {"y_train_kind": KIND, "y_train_sub_kind": np.flip(KIND, axis=0)}
    assert [output["loss"] for output in outputs_of(model, given)] == ["sparse_categorical_crossentropy"] * 2
    assert [given[f"y_train_{name}"].tolist() for name in ("kind", "sub_kind")] == [[0, 1, 2] * 2, [2, 1, 0] * 2]


def test_an_object_that_is_everyones_loss_keeps_its_arguments() -> None:
    outputs = outputs_of(compiled(loss=keras.losses.Huber(delta=2.0)), arrays())
    assert [output["loss"] for output in outputs] == [{"name": "huber", "delta": 2.0}] * 2
