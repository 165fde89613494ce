"""Define the data set that every source returns: training, validation and test samples with their labels, checked."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vcdl.data.labels import Classes, Given, classes_of
from vcdl.data.numbers import ROUNDED, are_rounded
from vcdl.data.rows import Array, Inputs, Rows, shape_of
from vcdl.errors import DataError
from vcdl.wire.inputs import InputShape, Outputs, array_name, parts_of
from vcdl.wire.task import HAS_CLASSES, LABEL_AXES, Task

_MISSING = (
    "multi_label cannot mask missing labels. Write -1 for them, set data > task: sequence and mask: -1, end the model "
    "in Dense(2 * labels), Reshape((labels, 2)) and Softmax(), and take the loss sparse_categorical_crossentropy"
)
_PLAIN_BY_KIND = {
    "c": "give real and imaginary parts, numpy.concatenate([a.real, a.imag], axis=-1)",
    **dict.fromkeys("US", "turn the text into numbers, a.astype(float)"),
    **dict.fromkeys("mM", "give times as numbers, such as days since a first one or year, month and weekday"),
    "O": "save it as one plain array, numpy.stack(list(a))",
}
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Part:
    """Samples with their labels: `x` and `y` of shape (n, …)."""

    x: Inputs
    y: Array
    weights: Array | None = None
    """Weight of each sample in training, shape (n,), float32; None: all equal."""
    groups: Array | None = None
    """Group of each sample (`data > by`), shape (n,), as integers in the order of the column's values; None: no
    groups."""

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Dataset:
    """A job's training, validation and test samples, with their labels.

    Samples keep their original number type; those of large sources are read from the disk when they are used (`Rows`).
    """

    x_train: Inputs
    y_train: Array
    x_val: Inputs
    y_val: Array
    x_test: Inputs | None = None
    y_test: Array | None = None

    @property
    def class_names_by_output(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes, keyed by output; outputs without class names are left out."""
        return {name: classes.names for name, classes in self.classes_by_output.items() if classes and classes.names}

    @property
    def predicts_itself(self) -> bool:
        """Whether y is x, as in an autoencoder's data, which are then stored once."""
        return self.x_train.are_labels if isinstance(self.x_train, Rows) else self.y_train is self.x_train

    def inputs(self, name: str = "") -> dict[str, Inputs]:
        """Return one input of each part (training, validation, test), keyed by array name, such as `x_train`.

        Args:
            name: Name of the input, where the model has several.
        """
        named = {"x_train": self.x_train, "x_val": self.x_val, "x_test": self.x_test}
        return {array_name(part, name): _input(x, name) for part, x in named.items() if x is not None}

    @property
    def input_shape(self) -> InputShape:
        """Shape of one sample."""
        return shape_of(self.x_train)

    @property
    def memory_bytes(self) -> int:
        """Bytes that the samples and labels take in memory; samples that stay on the disk count as 0."""
        labels = () if self.predicts_itself else (self.y_train, self.y_val, self.y_test)
        arrays = (self.x_train, self.x_val, self.x_test, *labels)
        return sum(array.nbytes for array in arrays if array is not None and not isinstance(array, Rows))

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample without its label, uncompressed."""
        return self.x_train.sample_bytes if isinstance(self.x_train, Rows) else self.x_train[:1].nbytes

    classes: Classes | None = None
    """The classes; None: the labels are numbers to predict."""
    classes_by_output: Mapping[str, Classes | None] = field(default_factory=dict)
    """The classes of each output by its name, if there are several."""
    weights_train: Array | None = None
    """Weight of each training sample, shape (n,), float32; None: all equal."""
    groups_train: Array | None = None
    """Group of each training sample, shape (n,), if shards are cut by groups (`data > by`)."""
    weights_val: Array | None = None
    """Weights of validation samples, for the server's own training and the comparison of uploads."""

    @property
    def outputs(self) -> Outputs:
        """Number of classes, or of values to predict for a sample; by name if the model has several outputs."""
        return outputs_of(self.y_train, self.classes, self.classes_by_output)


@dataclass(frozen=True)
class DataSource:
    """A source's data as it provides them: without a validation set of its own, that is later taken from `train`."""

    train: Part
    val: Part | None = None
    test: Part | None = None
    classes: Classes | None = None
    """The classes; None: numbers to predict, or labels that were not examined yet."""
    classes_by_output: Mapping[str, Classes | None] = field(default_factory=dict)
    """The classes of each output by its name, if there are several."""

    def parts(self) -> dict[str, Part]:
        """Return the existing parts, keyed by `train`, `val` and `test`, in this order."""
        named = (("train", self.train), ("val", self.val), ("test", self.test))
        return {name: part for name, part in named if part is not None}


@dataclass(frozen=True)
class Facts:
    """Facts about a source that are known without reading its samples."""

    input_shape: InputShape
    """Shape of one sample."""
    outputs: Outputs
    """Number of classes, or of numbers to predict."""
    train_samples: int
    val_samples: int
    """Number of validation samples; 0 if they are cut from the training samples."""
    test_samples: int
    sample_bytes: int
    """Bytes of one sample and its label, uncompressed."""
    packed: float = 1.0
    """Measured ratio of the size in a compressed shard to the uncompressed size; 1 when unknown."""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty if the classes are numbers."""


def outputs_of(y: Array, classes: Classes | None, by_output: Mapping[str, Classes | None]) -> Outputs:
    """Return the number of classes or of values to predict for a sample; for several outputs, by name."""
    if by_output:
        return {name: one_output(part, by_output[name]) for name, part in parts_of(y).items()}
    return one_output(y, classes)


def _input(x: Inputs, name: str) -> Inputs:
    return x if isinstance(x, Rows) else parts_of(x)[name]


def one_output(y: Array, classes: Classes | None) -> int:
    """Return the number of classes or, without classes, of values to predict for a sample."""
    return int(np.prod(y.shape[1:], dtype=np.int64)) if classes is None else classes.count


def make_part(name: str, x: Array, y: Array, task: Task, output: str = "") -> Part:
    """Check `x` and `y`, and return them as a Part.

    Args:
        name: Name of the part, for messages.
        x: Samples.
        y: Labels.
        task: The kind of task, which determines the form of the labels.
        output: Name of the output, for messages.

    Raises:
        DataError: No model could train on such data.
    """
    x_name, y_name = f"x_{name}", array_name(f"y_{name}", output)
    inputs = {array_name(x_name, of): part for of, part in parts_of(x).items()}
    has_classes = task in HAS_CLASSES
    for array, values in inputs.items():
        refuse_kind(array, values.dtype, "biuf")
        if values.ndim < 2:
            raise DataError(f"{array} has shape {values.shape}, expected (samples, …): one row for each sample")
    refuse_kind(y_name, y.dtype, "biufUS" if has_classes else "biuf")
    if y.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{x_name} has {len(x)} samples and {y_name} {len(y) if y.ndim else 'none'}: the numbers must agree"
        )
    # Test this before NaN in general, whose advice to drop the sample would also lose the labels that are known.
    if task == "multi_label" and y.dtype.kind == "f" and np.isnan(y).any():
        raise DataError(f"{y_name} holds labels of NaN: {_MISSING}")
    for array, values in (*inputs.items(), (y_name, y)):
        if values.size == 0:
            raise DataError(f"{array} is empty: it has shape {values.shape}")
        _refuse_not_finite(array, values)
    if has_classes:
        return Part(x, _labels(y_name, y, task))
    # Clients train in float32, in which such targets would become a few values, and the loss would still look
    # plausible.
    if are_rounded(y.min(axis=0), y.max(axis=0)):
        raise DataError(f"{y_name} has numbers up to {y.max():.10g}, {ROUNDED}")
    return Part(x, _flags(y_name, y) if task == "multi_label" else y.astype(np.float32))


def number_labels(source: DataSource, given: Given, mask: str | int | None = None) -> DataSource:
    """Return the source with its labels converted to class numbers, and with its classes.

    Args:
        source: The source.
        given: The value of `data > classes`.
        mask: The value of `data > mask`, the label that is not learned; None: every label is.

    Raises:
        DataError: The labels are not classes, or do not match `given` or `mask`.
    """
    parts = source.parts()
    labels, classes = classes_of({f"y_{name}": part.y for name, part in parts.items()}, given, mask)
    placed = {name: replace(part, y=labels[f"y_{name}"]) for name, part in parts.items()}
    return DataSource(placed["train"], placed.get("val"), placed.get("test"), classes)


def name_labels(source: DataSource, names: Given) -> DataSource:
    """Return a source of several labels per sample with the names of these labels.

    Args:
        source: The source.
        names: The value of `data > classes`: names or a number, which must match the labels of a sample.

    Raises:
        DataError: The number of names differs from the number of labels.
    """
    count = source.train.y.shape[1]
    if names is None:
        return source
    if (given := names if isinstance(names, int) else len(names)) != count:
        raise DataError(f"y_train has {count} labels a sample, but data > classes says {given}")
    return replace(source, classes=Classes(count, () if isinstance(names, int) else tuple(map(str, names))))


def content_sha256(*arrays: Array) -> str:
    """Return the SHA-256 over type, shape and numbers of the arrays in order.

    It does not depend on the source of the arrays.
    """
    digest = hashlib.sha256()
    for array in arrays:
        # Use `descr` for arrays with fields: their dtype.str is only a size (|V12), so different sets of fields would
        # look the same.
        kind = array.dtype.str if array.dtype.names is None else str(array.dtype.descr)
        digest.update(f"{kind}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def refuse_kind(name: str, dtype: "np.dtype[Any]", kinds: str) -> None:
    """Raise DataError unless an array's type is one of some kinds.

    Args:
        name: Name of the array, for the message.
        dtype: Its type.
        kinds: The accepted values of NumPy's `dtype.kind`, such as `biuf` for numbers.
    """
    if dtype.kind not in kinds:
        cure = _PLAIN_BY_KIND.get(dtype.kind, "save it as a plain NumPy array")
        raise DataError(f"{name} holds {dtype}, expected numbers: {cure}")


def _refuse_not_finite(name: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    if bad:
        raise DataError(f"{name} holds {bad} numbers that are NaN or infinite (of {array.size}): replace or drop them")
    if array.dtype.itemsize > 4 and max(-array.min(), array.max()) > _LARGEST:
        raise DataError(f"{name} holds numbers beyond ±{_LARGEST:.2g}, which float32 cannot hold: scale them")


def _labels(name: str, y: Array, task: Task) -> Array:
    """Return the labels with as many axes as the task requires; a last axis of size 1 is dropped. Raises DataError."""
    axes = LABEL_AXES[task]
    # Shape (n, 1) is what Keras' CIFAR loaders and pandas' DataFrame.to_numpy give for plain labels.
    if y.ndim == axes + 1 and y.shape[-1] == 1:
        y = y[..., 0]
    if y.ndim == axes:
        return y
    expected = {1: "(samples,)", 2: "(samples, steps)", 3: "(samples, height, width)"}[axes]
    others = {
        1: "classification for a label for each sample",
        2: "sequence for a label for each step, or multi_label for several labels of 0 and 1",
        3: "segmentation for a label for each pixel",
    }
    places = y.ndim - (y.ndim > 1 and y.shape[-1] == 1)
    other = f"{others[places]}, or " if places in others else ""
    # Recognise one-hot labels only for the message. Rows of 0 and 1 may also be several labels of a sample, so they are
    # not converted silently.
    is_one_hot = y.shape[-1] > 1 and y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all() and (y.sum(axis=-1) == 1).all()
    cure = "turn one-hot labels into numbers with argmax, or " if is_one_hot else ""
    raise DataError(
        f"{name} has shape {y.shape}, expected {expected} of labels: {cure}set data > task ({other}regression for "
        "numbers, and for a loss that compares an output with each of them, such as binary_crossentropy)"
    )


def _flags(name: str, y: Array) -> Array:
    """Return the labels of a task with several labels a sample, shape (n, labels), each 0 or 1. Raises DataError."""
    if y.ndim != 2 or y.shape[1] < 2:
        raise DataError(
            f"{name} has shape {y.shape}, expected (samples, labels) of 0 and 1: "
            "for one label a sample set data > task: classification"
        )
    if y.dtype.kind != "u" and np.isin(y, (-1, 0, 1)).all() and (y < 0).any():
        raise DataError(f"{name} holds labels of -1: {_MISSING}")
    if not np.isin(y, (0, 1)).all():
        raise DataError(f"{name} holds other numbers than 0 and 1: for numbers set data > task: regression")
    return y.astype(np.float32)
