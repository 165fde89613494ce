"""Held-out data and shards as a model takes them, read back from the run's folder."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from vcdl.data.npz_file import map_split, read_weights_of
from vcdl.data.rows import Array
from vcdl.wire.normalise import normalise
from vcdl.wire.task import MASKED
from vcdl.wire.workunit import Normalisation

_IN_MEMORY_BYTES = 2**28
"""Bytes of a file whose samples are all normalised at once; those of a larger one when they are taken."""


class Sliced(Protocol):
    """An array, or an object that gives parts of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any, /) -> Any:
        """Return the samples of a slice, or at some indices."""


class MappedSamples:
    """Inputs in a file, shape (n, …): each is read and normalised when it is taken."""

    def __init__(self, x: Sliced, normalisation: Normalisation) -> None:
        self._x = x
        self._normalisation = normalisation

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, some: Any, /) -> Array:
        return normalise(np.asarray(self._x[some]), self._normalisation)


class Samples(NamedTuple):
    """Inputs, normalised, and what they are compared with."""

    x: Sliced
    y: Sliced
    weights: Array | None = None
    """The weight of each sample in training, shape (n,); None: all alike. Measures for people do not weigh."""

    def taken(self, some: Any) -> "Samples":
        """Return the samples at these indices, in memory."""
        return Samples(self.x[some], self.y[some], None if self.weights is None else self.weights[some])

    def loaded(self, most: int | None = None) -> tuple[Array, Array, Array | None]:
        """Return all samples as arrays; of samples in a file at most `most`."""
        if isinstance(self.x, np.ndarray) and isinstance(self.y, np.ndarray):
            return self.x, self.y, self.weights
        return self.taken(slice(most)).loaded()

    @property
    def counted(self) -> Array | None:
        """1 for each label that counts and 0 for a masked one, in the shape of y; None: all count."""
        y = self.y
        # A mask exists only where a sample has several labels of classes (sequence, segmentation), which are signed
        # because MASKED is -1.
        if not isinstance(y, np.ndarray) or y.dtype.kind != "i" or y.ndim < 2 or not (masked := y == MASKED).any():
            return None
        return np.where(masked, np.float32(0), np.float32(1))


def read_samples(path: Path, normalisation: Normalisation) -> Samples:
    """Return the samples of a file of ours; an autoencoder's are their labels. Raises DataError, FileUnavailable."""
    x, y = map_split(path)
    # A compressed file was read as a whole, so only a mapped one can be too large for memory.
    is_large = not (isinstance(x, np.ndarray) and not isinstance(x, np.memmap)) and x.nbytes > _IN_MEMORY_BYTES
    normalised = MappedSamples(x, normalisation) if is_large else normalise(np.asarray(x[:]), normalisation)
    # An autoencoder is compared with its normalised inputs, as on the clients.
    return Samples(normalised, normalised if y is x else y, read_weights_of(path))
