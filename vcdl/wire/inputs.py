"""Samples of several inputs, or labels of several outputs, as one structured array with a field for each.

NumPy only.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
InputShape = Shape | Mapping[str, Shape]
"""The shape of one sample; for a model with several inputs, a shape by each input's name."""
Outputs = int | Mapping[str, int]
"""Number of classes, or of predicted numbers; for several outputs, by each output's name."""


def pack_inputs(arrays: Mapping[str, Array]) -> Array:
    """Pack named inputs, each of shape (n, …), into one structured array of shape (n,)."""
    count = len(next(iter(arrays.values())))
    whole = np.empty(count, [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])
    for name, array in arrays.items():
        whole[name] = array
    return whole


def parts_of(x: Array) -> dict[str, Array]:
    """Return input's name → its array of shape (n, …), as views. A single input has the name ""."""
    return {"": x} if x.dtype.names is None else {name: x[name] for name in x.dtype.names}


def each(change: Callable[[str, Array], Array], x: Array) -> Array:
    """Apply a function to each input of some samples, and return the samples in the same form.

    Args:
        change: Gets an input's name ("" for a single input) and its array, and returns the new array.
        x: The samples.
    """
    changed = {name: change(name, part) for name, part in parts_of(x).items()}
    return changed[""] if x.dtype.names is None else pack_inputs(changed)


def as_keras_takes(x: Array) -> Array | dict[str, Array]:
    """Return samples in the form that a Keras model accepts: several inputs as a dict of arrays."""
    # Fields of a sample are neighbours in memory, and backends want each input in one piece (decision 042).
    return x if x.dtype.names is None else {name: np.ascontiguousarray(part) for name, part in parts_of(x).items()}


def sample_shape(x: Array) -> InputShape:
    """Return the shape of one sample; for several inputs, input's name → shape."""
    return x.shape[1:] if x.dtype.names is None else {name: part.shape[1:] for name, part in parts_of(x).items()}


def count_of(outputs: Outputs) -> int:
    """Return the number of classes or numbers of all outputs together."""
    return outputs if isinstance(outputs, int) else sum(outputs.values())


def format_shape(shape: InputShape) -> str:
    """Return the shape in words: `(28, 28)`, or `a (28, 28), b (3,)`."""
    return str(shape) if isinstance(shape, tuple) else ", ".join(f"{name} {one}" for name, one in shape.items())


def array_name(part: str, name: str) -> str:
    """Return the name of an input's array in a file: `x_train`, or `x_train_NAME` for one of several."""
    return f"{part}_{name}" if name else part
