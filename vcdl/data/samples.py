"""Read shards and held-out samples from the run's folder, normalised for the model."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from vcdl.data.npz_file import map_split, read_weights_of
from vcdl.data.rows import Array
from vcdl.wire.normalise import normalise
from vcdl.wire.task import MASKED
from vcdl.wire.workunit import Normalisation

_IN_MEMORY_BYTES = 2**28
"""Bytes of a file up to which all samples are normalised when it is read. Those of a larger file are normalised on use,
so that memory stays bounded."""


class Sliced(Protocol):
    """An array, or an object that can be sliced and indexed like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any, /) -> Any:
        """Return the samples of a slice, or at some indices."""


class MappedSamples:
    """Inputs in a file, shape (n, …); slices are read and normalised when they are used."""

    def __init__(self, x: Sliced, normalisation: Normalisation) -> None:
        self._x = x
        self._normalisation = normalisation

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, some: Any, /) -> Array:
        return normalise(np.asarray(self._x[some]), self._normalisation)


class Samples(NamedTuple):
    """Normalised inputs, with their labels."""

    x: Sliced
    y: Sliced
    weights: Array | None = None
    """Weight of each sample in training, shape (n,); None: all equal. Reported metrics ignore them."""

    def take(self, some: Any) -> "Samples":
        """Return the samples at these indices, in memory."""
        return Samples(self.x[some], self.y[some], None if self.weights is None else self.weights[some])

    def load(self, most: int | None = None) -> tuple[Array, Array, Array | None]:
        """Return x, y and weights in memory; x is read if it is in a file.

        Args:
            most: Most samples to load if they are in a file; None: all of them.
        """
        if isinstance(self.x, np.ndarray) and isinstance(self.y, np.ndarray):
            return self.x, self.y, self.weights
        return self.take(slice(most)).load()

    @property
    def counted(self) -> Array | None:
        """Weights that leave out masked labels: 1 for each label, 0 for masked ones, in the shape of y.

        None: none is masked.
        """
        y = self.y
        # Only class numbers in several places of a sample can be masked (sequence, segmentation). They are signed,
        # because MASKED is -1.
        if not isinstance(y, np.ndarray) or y.dtype.kind != "i" or y.ndim < 2 or not (masked := y == MASKED).any():
            return None
        return np.where(masked, np.float32(0), np.float32(1))


def read_samples(path: Path, normalisation: Normalisation) -> Samples:
    """Read the samples of a shard or of held-out data, normalised.

    The labels of an autoencoder are its inputs.

    Raises:
        DataError, FileUnavailable: The file is damaged, or cannot be read now.
    """
    x, y = map_split(path)
    # A compressed file is in memory already, so only a mapped one can be too large.
    is_large = not (isinstance(x, np.ndarray) and not isinstance(x, np.memmap)) and x.nbytes > _IN_MEMORY_BYTES
    normalised = MappedSamples(x, normalisation) if is_large else normalise(np.asarray(x[:]), normalisation)
    # Compare an autoencoder with its normalised inputs, as on the clients.
    return Samples(normalised, normalised if y is x else y, read_weights_of(path))
