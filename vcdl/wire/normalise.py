"""Normalise a model's inputs: `x ↦ x · scale + offset` in float32, or keep whole numbers. NumPy only."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.wire.inputs import each
from vcdl.wire.workunit import Normalisation


def normalise(x: npt.NDArray[Any], normalisation: Normalisation) -> npt.NDArray[Any]:
    """Normalise `x`, shape (n, …), to float32; convert inputs of integers to int32 without scaling.

    Raises:
        ValueError: `x` has other inputs or channels than the normalisation, or is not of integers where it should be.
    """
    if normalisation.inputs or x.dtype.names is not None:
        by_name = dict(normalisation.inputs)
        if set(by_name) != set(x.dtype.names or ()):
            raise ValueError(f"the data have the inputs {x.dtype.names}, expected {tuple(by_name)}")
        return each(lambda name, part: normalise(part, by_name[name]), x)
    if normalisation.integers:
        return _integers(x)
    result: npt.NDArray[np.float32] = np.multiply(
        x, np.asarray(normalisation.scale, np.float32), dtype=np.float32, casting="unsafe"
    )
    if result.shape != x.shape:
        raise ValueError(f"{len(normalisation.scale)} scales do not fit data of shape {x.shape}")
    # Most data have no offset, and adding one is a second pass over the data.
    if any(normalisation.offset):
        result += np.asarray(normalisation.offset, np.float32)
    return result


def _integers(x: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    limits = np.iinfo(np.int32)
    if x.size and not (limits.min <= x.min() and x.max() <= limits.max):  # also refuses NaN
        raise ValueError("the data hold numbers beyond 32 bits, and whole numbers are expected")
    whole = x.astype(np.int32)
    if x.dtype.kind == "f" and np.any(whole != x):
        raise ValueError("the data hold numbers that are not whole, and whole numbers are expected")
    return whole
