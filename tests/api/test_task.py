"""The task that follows from the loss and the labels."""

from typing import Any

import numpy as np
import pytest

from vcdl.api.task import task_of

LABELS = np.zeros(4, int)
NUMBERS = np.full(4, 0.5)


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
    assert task_of((None, 3), loss, y) == task


def test_a_model_that_ends_in_steps_has_labels_for_each() -> None:
    assert task_of((None, 7, 3), None, np.zeros((4, 7), int)) == "sequence"


FLAGS = np.arange(4 * 6 * 6).reshape(4, 6, 6) % 2


@pytest.mark.parametrize(
    ("output_shape", "y", "task"),
    [
        ((None, 1), FLAGS[:, 0, 0], "classification"),
        ((None, 1), FLAGS[:, 0, :1], "classification"),
        ((None, 1), NUMBERS, "regression"),
        ((None, 6), NUMBERS[:, None] + np.zeros(6), "regression"),
        ((None, 6, 1), FLAGS[:, 0], "sequence"),
        ((None, 6, 1), FLAGS[:, 0, :, None], "sequence"),
        ((None, 6, 3), np.zeros((4, 6, 3)), "regression"),
        ((None, 6, 6, 1), FLAGS[..., None], "segmentation"),
        ((None, None, None, 1), FLAGS.astype(bool), "segmentation"),
        ((None, 6, 6, 1), FLAGS[..., None] / 3, "regression"),
        ((None, 6, 6, 3), np.zeros((4, 6, 6, 3)), "regression"),
        ((None, 6, 6), FLAGS, "regression"),
        ((None, 2, 6, 6, 1), np.zeros((4, 2, 6, 6, 1)), "regression"),
    ],
    ids=str,
)
@pytest.mark.parametrize("loss", ["binary_crossentropy", {"name": "BinaryFocalCrossentropy", "gamma": 3}])
def test_a_binary_loss_asks_about_each_output(loss: Any, output_shape: Any, y: Any, task: str) -> None:
    assert task_of(output_shape, loss, y) == task
