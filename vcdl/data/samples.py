"""Held-out data and shards as a model takes them, read back from the run's folder."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcdl.data.npz_file import read_split, read_weights_of
from vcdl.wire.normalise import normalise
from vcdl.wire.task import MASKED
from vcdl.wire.workunit import Normalisation

Array = npt.NDArray[Any]


class Samples(NamedTuple):
    """Inputs, normalised, and what they are compared with."""

    x: Array
    y: Array
    weights: Array | None = None
    """How much each sample counts in training, shape (n,); None: all alike. Measures for people do not weigh."""

    def taken(self, some: Any) -> "Samples":
        """The samples at these indices."""
        return Samples(self.x[some], self.y[some], None if self.weights is None else self.weights[some])

    @property
    def counted(self) -> Array | None:
        """1 for each label that counts and 0 for a masked one, in the shape of y; None: all count."""
        if self.y.dtype.kind != "i" or self.y.ndim < 2 or not (masked := self.y == MASKED).any():
            return None
        return np.where(masked, np.float32(0), np.float32(1))


def read_samples(path: Path, normalisation: Normalisation) -> Samples:
    """The samples of a file that `write_split` wrote; those of an autoencoder are compared with themselves.

    Raises DataError, FileUnavailable.
    """
    x, y = read_split(path)
    normalised = normalise(x, normalisation)
    return Samples(normalised, normalised if y is x else y, read_weights_of(path))
