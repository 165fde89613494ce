"""A checked data set in memory: the output of every source."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import DataError

Array = npt.NDArray[Any]

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Part:
    """Samples with their labels: `x` of shape (n, …), `y` of shape (n,) or (n, outputs)."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Dataset:
    """Training, validation and perhaps test samples; inputs keep their original number type."""

    x_train: Array
    y_train: Array
    x_val: Array
    y_val: Array
    x_test: Array | None = None
    y_test: Array | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    @property
    def outputs(self) -> int:
        """Size of the model's output: the number of classes, or of numbers to predict."""
        return outputs_of(self.y_train, *(y for y in (self.y_val, self.y_test) if y is not None))


@dataclass(frozen=True)
class DataSource:
    """A source's data before the validation set is cut off."""

    train: Part
    val: Part | None = None
    test: Part | None = None


@dataclass(frozen=True)
class Facts:
    """Facts about a source that need no samples."""

    input_shape: tuple[int, ...]
    """Shape of one sample."""
    outputs: int
    """Classes, or numbers to predict."""
    train_samples: int
    val_samples: int
    """0 when they are cut from the training samples."""
    test_samples: int
    sample_bytes: int
    """Bytes of one sample and its label, uncompressed."""
    packed: float = 1.0
    """Measured ratio of the size in a compressed shard to the uncompressed size; 1 when unknown."""


def outputs_of(*labels: Array) -> int:
    """The number of classes when the labels are integers, else the numbers to predict per sample."""
    if labels[0].dtype.kind in "iu":
        return max(int(y.max()) for y in labels) + 1
    return int(np.prod(labels[0].shape[1:], dtype=np.int64))


def checked_part(name: str, x: Array, y: Array, task: str) -> Part:
    """`x` and `y` as a Part: labels int32, or float32 for a regression.

    `name` (train, val, test) appears in messages. Raises DataError: object arrays, different lengths, NaN, infinity or
    numbers beyond float32, labels that are negative or not whole numbers.
    """
    x_name, y_name = f"x_{name}", f"y_{name}"
    for array_name, array in ((x_name, x), (y_name, y)):
        if array.dtype.kind not in "biuf":
            raise DataError(f"{array_name} holds {array.dtype}, expected numbers: save it as a plain NumPy array")
    if x.ndim < 2:
        raise DataError(f"{x_name} has shape {x.shape}, expected (samples, …): one row for each sample")
    if y.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{x_name} has {len(x)} samples and {y_name} {len(y) if y.ndim else 'none'}: the numbers must agree"
        )
    for array_name, array in ((x_name, x), (y_name, y)):
        if array.size == 0:
            raise DataError(f"{array_name} is empty: it has shape {array.shape}")
        _refuse_not_finite(array_name, array)
    return Part(x, _labels(y_name, y) if task == "classification" else y.astype(np.float32))


def content_sha256(*arrays: Array) -> str:
    """SHA-256 over type, shape and numbers of the arrays in order, which does not depend on their source."""
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
        raise DataError(f"{name} holds {bad} numbers that are NaN or infinite (of {array.size}): replace or drop them")
    if array.dtype.itemsize > 4 and max(-array.min(), array.max()) > _LARGEST:
        raise DataError(f"{name} holds numbers beyond ±{_LARGEST:.2g}, and float32 is trained: scale them")


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
