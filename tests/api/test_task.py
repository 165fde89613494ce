"""The task that follows from the loss and the labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from vcdl.api.task import task_of

LABELS = np.zeros(4, int)
NUMBERS = np.full(4, 0.5)


@dataclass(frozen=True)
class Model:
    """As much of a Keras model as is looked at."""

    output_shape: tuple[int | None, ...] = (None, 3)


@pytest.mark.parametrize(
    ("loss", "y", "task"),
    [
        ("sparse_categorical_crossentropy", LABELS, "classification"),
        ({"name": "SparseCategoricalCrossentropy", "from_logits": True}, LABELS.astype(float), "classification"),
        ("sparse_categorical_crossentropy", LABELS[:, None], "classification"),
        ("sparse_categorical_crossentropy", np.zeros((4, 7), int), "sequence"),
        ("sparse_categorical_crossentropy", np.zeros((4, 7, 7, 1), int), "segmentation"),
        ("binary_crossentropy", LABELS, "classification"),
        ("binary_crossentropy", np.zeros((4, 7), int), "multi_label"),
        ("mse", LABELS, "regression"),
        ("huber", NUMBERS, "regression"),
        ("mse", None, "autoencoder"),
        (None, LABELS, "classification"),
        (None, LABELS.astype(float), "classification"),
        (None, np.array(["cat", "dog"]), "classification"),
        (None, NUMBERS, "regression"),
        (None, np.zeros((4, 3), int), "multi_label"),
        (None, np.zeros((4, 3)), "regression"),
    ],
    ids=str,
)
def test_it_is_what_fit_would_do(loss: Any, y: Any, task: str) -> None:
    assert task_of(Model(), loss, y) == task


def test_a_model_that_ends_in_steps_has_labels_for_each() -> None:
    assert task_of(Model((None, 7, 3)), None, np.zeros((4, 7), int)) == "sequence"
