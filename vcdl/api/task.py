"""Derive a job's task from the arguments of `fit`: the loss, the labels and the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from vcdl.errors import DataError
from vcdl.wire.task import Task

_SPARSE = "sparsecategoricalcrossentropy"
_ONE_HOT = "categoricalcrossentropy"
_PROBABILITIES = ("binarycrossentropy", "binaryfocalcrossentropy", "bce")
_BINARY = (*_PROBABILITIES, "hinge", "squaredhinge")


def task_of(output_shape: Sequence[int | None], loss: Any, y: Any) -> Task:
    """Return the `data > task` that the loss, the labels and the output's shape imply.

    Args:
        output_shape: Shape of the output that learns the labels, with the axis of samples.
        loss: Loss as a job file has it; None for a model that was not compiled.
        y: Labels; None: they are x.
    """
    if y is None:
        return "autoencoder"
    name, dimensions = _name(loss).replace("_", ""), _dimensions(y)
    if name == _SPARSE:
        return _labels(dimensions)
    # Numbers between 0 and 1 as labels of a binary loss are no classes, and an accuracy of them says nothing.
    if name in _PROBABILITIES and y.dtype.kind in "biuf" and not ((y == 0) | (y == 1)).all():
        return "regression"  # probabilities of another model, or pixels from 0 to 1
    if name in _BINARY:
        return _of_questions(dimensions, output_shape)
    if name or _has_fractions(y):
        return "regression"
    if dimensions == 2 and len(output_shape) == 2:
        return "regression" if y.dtype.kind == "f" else "multi_label"
    return _labels(dimensions)


def _of_questions(dimensions: int, output_shape: Sequence[int | None]) -> Task:
    if dimensions == 1 or len(output_shape) == 2:
        return "multi_label" if dimensions == 2 else "classification"
    # One yes or no for each step or pixel is that place's label. Several for each are compared number by number.
    return _labels(dimensions) if output_shape[-1] == 1 and dimensions < 4 else "regression"


def as_classes(training: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Replace one-hot labels by class numbers, which are smaller, and the loss and metrics by those that accept them.

    A loss that smooths labels is kept, with its labels, because the loss for class numbers has no such argument.

    Args:
        training: The section `training`; changed in place.
        arrays: The arrays by name; labels are replaced in place, if all of them are one-hot.
    """
    labels = {name: y for name, y in arrays.items() if name.startswith("y_")}
    if isinstance(training.get("loss"), Mapping) and "label_smoothing" in training["loss"]:
        return
    if _name(training.get("loss")).replace("_", "") != _ONE_HOT or not all(map(_is_one_hot, labels.values())):
        return
    arrays.update({name: y.argmax(axis=-1) for name, y in labels.items()})
    training["loss"] = _sparse(training["loss"])
    if "metrics" in training:
        training["metrics"] = [_sparse(metric) for metric in training["metrics"]]


def refuse_one_hot(output_shape: Sequence[int | None], loss: Any, y: Any) -> None:
    """Refuse one-hot labels for a loss that accepts class numbers only.

    Args:
        output_shape: Shape of the output that learns the labels, with the axis of samples.
        loss: Loss as a job file has it; None for a model that was not compiled.
        y: Labels; None: they are x.

    Raises:
        DataError: The labels are one-hot, and the loss is for class numbers.
    """
    if y is None or _name(loss).replace("_", "") != _SPARSE or tuple(output_shape[1:]) != y.shape[1:]:
        return
    if y.shape[-1] > 1 and _is_one_hot(y):
        raise DataError(
            "y is one-hot, and the loss sparse_categorical_crossentropy takes the numbers of classes: give "
            "y.argmax(axis=-1), or compile with categorical_crossentropy"
        )


def _labels(dimensions: int) -> Task:
    return "classification" if dimensions == 1 else "sequence" if dimensions == 2 else "segmentation"


def _dimensions(y: Any) -> int:
    """Return the number of axes of the labels, without a last one of length 1."""
    # `fit` takes labels of shape (n, 1) and (n,) alike.
    dimensions: int = y.ndim
    return dimensions - 1 if dimensions > 1 and y.shape[-1] == 1 else dimensions


def _has_fractions(y: Any) -> bool:
    return bool(y.dtype.kind == "f" and (y != y.round()).any())


def _is_one_hot(y: Any) -> bool:
    return bool(y.ndim > 1 and y.dtype.kind in "biuf" and ((y == 0) | (y == 1)).all() and (y.sum(axis=-1) == 1).all())


def _sparse(part: Any) -> Any:
    name = _name(part)
    if not name.replace("_", "").startswith(("categorical", "topkcategorical")):
        return part
    spelt = f"sparse_{name}" if "_" in name else f"sparse{name}"
    return {**part, "name": spelt} if isinstance(part, Mapping) else spelt


def _name(part: Any) -> str:
    """Return the name of a loss or a metric in the spelling that the checks use."""
    name = part.get("name") if isinstance(part, Mapping) else part
    return name.lower() if isinstance(name, str) else ""
