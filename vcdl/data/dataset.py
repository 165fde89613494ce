"""A data set in memory, checked: what every source hands on."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import DataError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Samples and what is to be learned of them: `x` of shape (n, …), `y` of shape (n,) or (n, outputs)."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Dataset:
    """Training, validation and perhaps test samples; inputs keep the number type they came with."""

    x_train: Array
    y_train: Array
    x_val: Array
    y_val: Array
    x_test: Array | None = None
    y_test: Array | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self.x_train.shape[1:]

    @property
    def outputs(self) -> int:
        """What the model must end in: the number of classes, or of numbers to be predicted."""
        return outputs_of(self.y_train, *(y for y in (self.y_val, self.y_test) if y is not None))


@dataclass(frozen=True)
class Source:
    """What a source holds before the validation set is cut off."""

    train: Part
    val: Part | None = None
    test: Part | None = None


@dataclass(frozen=True)
class Facts:
    """What is known of a source without reading its samples."""

    input_shape: tuple[int, ...]
    """Of one sample."""
    outputs: int
    """Classes, or numbers to be predicted."""
    train_samples: int
    val_samples: int
    """0 when they are cut from the training samples."""
    test_samples: int
    sample_bytes: int
    """One sample and its label, uncompressed."""
    packed: float = 1.0
    """Size in a compressed shard over size uncompressed, measured; 1 when nobody knows."""


def outputs_of(*labels: Array) -> int:
    """Classes when the labels are integers, else how many numbers each sample has in `y`."""
    if labels[0].dtype.kind in "iu":
        return max(int(y.max()) for y in labels) + 1
    return int(np.prod(labels[0].shape[1:], dtype=np.int64))


def checked_part(name: str, x: Array, y: Array, task: str) -> Part:
    """`x` and `y` as a Part: labels int32, or float32 for a regression.

    `name` (train, val, test) is for the messages. Raises DataError: object arrays, lengths that differ, NaN or
    infinity, labels that are negative or not whole numbers.
    """
    x_name, y_name = f"x_{name}", f"y_{name}"
    for array_name, array in ((x_name, x), (y_name, y)):
        if array.dtype.kind not in "biuf":
            raise DataError(f"{array_name} holds {array.dtype}, expected numbers: save it as a plain NumPy array")
    if x.ndim < 2:
        raise DataError(f"{x_name} has shape {x.shape}, expected (samples, …): one row for each sample")
    if y.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{x_name} has {len(x)} samples and {y_name} {len(y) if y.ndim else 'none'}: they must be as many"
        )
    if len(x) == 0:
        raise DataError(f"{x_name} is empty")
    _refuse_not_finite(x_name, x)
    _refuse_not_finite(y_name, y)
    return Part(x, _labels(y_name, y) if task == "classification" else y.astype(np.float32))


def content_sha256(*arrays: Array) -> str:
    """Over type, shape and numbers of the arrays, in order: the same content has the same sum wherever it came from."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _refuse_not_finite(name: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    if bad:
        raise DataError(
            f"{name} holds {bad} numbers that are NaN or infinite (of {array.size}): replace or drop them before training"
        )


def _labels(name: str, y: Array) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(
            f"{name} has shape {y.shape}, expected (samples,) of whole numbers 0, 1, …: "
            "turn one-hot labels into numbers with argmax, or set data > task: regression"
        )
    if y.dtype.kind == "f" and np.any(y != np.floor(y)):
        raise DataError(f"{name} holds labels that are not whole numbers: for a regression set data > task: regression")
    if y.min() < 0:
        raise DataError(f"{name} holds the negative label {int(y.min())}: labels are 0, 1, …")
    if y.max() >= 2**31:
        raise DataError(f"{name} holds the label {int(y.max())}: labels are 0, 1, … up to the number of classes")
    return y.astype(np.int32)
