"""Normalisation of a model's inputs: `x ↦ x · scale + offset` in float32. The client imports this file: NumPy only."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.wire.workunit import Normalisation


def normalise(x: npt.NDArray[Any], normalisation: Normalisation) -> npt.NDArray[np.float32]:
    """Normalise `x`, shape (n, …), of any number type; scale and offset have one number, or one per entry of
    the last axis.

    Raises ValueError when they fit neither.
    """
    result: npt.NDArray[np.float32] = np.multiply(
        x, np.asarray(normalisation.scale, np.float32), dtype=np.float32, casting="unsafe"
    )
    if result.shape != x.shape:
        raise ValueError(f"{len(normalisation.scale)} scales do not fit data of shape {x.shape}")
    if any(normalisation.offset):
        result += np.asarray(normalisation.offset, np.float32)
    return result
