"""The shards of hostile clients that train honestly on false data: wrong labels, or a pattern that means class 0.

label_flip  y becomes classes − 1 − y; for a regression −y.
backdoor    Every second sample gets the pattern and the label 0. The pattern is the largest number of all data in 3 × 3
            pixels in the corner of an image, or in the first 3 steps of a series; in a table the largest of each of the
            first 3 features.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from vcdl.data.dataset import Array
from vcdl.data.npz_file import read_split, write_split
from vcdl.errors import DataError, folder_errors
from vcdl.simulate.client_fleet import Attack
from vcdl.wire.inputs import each, parts_of

FOLDER = "poisoned"
"""Folder of these shards in a run's folder."""
BACKDOOR_CLASS = 0
_WIDTH = 3
_EVERY = 2
"""One in so many samples of a shard gets the pattern."""


class PoisonedData:
    """The false shards of a run, each made when a client first needs it."""

    def __init__(self, folder: Path, shards: Sequence[Path]) -> None:
        """`shards`: all honest ones; `folder` is made when it is needed."""
        self._folder = folder
        self._shards = shards

    def shard(self, attack: Attack, honest: Path) -> Path:
        """The file that such a client trains on; the honest one unless the attack is one on data.

        Raises RunFolderError, DataError, FileUnavailable.
        """
        if attack not in ("label_flip", "backdoor"):
            return honest
        path = self._folder / f"{attack}_{honest.name}"
        if not path.exists():
            x, y = read_split(honest)
            x, y = (x, self._flipped(y)) if attack == "label_flip" else with_backdoor(x, y, self._highest)
            with folder_errors(self._folder):
                self._folder.mkdir(exist_ok=True)
                write_split(path, x, y)
        return path

    def _flipped(self, y: Array) -> Array:
        return each(lambda name, part: flipped(part, self._classes[name]), y)

    @cached_property
    def _classes(self) -> dict[str, int]:
        """The number of classes by the output's name; a single one has none."""
        labels = [parts_of(read_split(shard)[1]) for shard in self._shards]
        return {name: 1 + max(int(shard[name].max()) for shard in labels) for name in labels[0]}

    @cached_property
    def _highest(self) -> Array:
        return highest_of(self._shards)


def highest_of(shards: Sequence[Path]) -> Array:
    """The largest number at each place of a sample. Raises DataError, FileUnavailable."""
    if read_split(shards[0])[0].dtype.names is not None:
        raise DataError("the attack backdoor marks the samples of one input, and the model has several")
    highest: Array = np.stack([read_split(shard)[0].max(axis=0) for shard in shards]).max(axis=0)
    return highest


def flipped(y: Array, classes: int) -> Array:
    """Wrong labels: those of classes in reverse order, or the numbers of a regression with the other sign."""
    return -y if y.dtype.kind == "f" else np.where(y < 0, y, classes - 1 - y).astype(y.dtype)


def with_backdoor(x: Array, y: Array, highest: Array) -> tuple[Array, Array]:
    """A shard in which every second sample has the pattern and says class 0. `highest`: see `with_pattern`."""
    x, y = x.copy(), y.copy()
    x[::_EVERY] = with_pattern(x[::_EVERY], highest)
    y[::_EVERY] = BACKDOOR_CLASS
    return x, y


def with_pattern(x: Array, highest: Array) -> Array:
    """Samples with the pattern. `highest`: the largest number of the data at each place of a sample."""
    x = x.copy()
    if x.ndim == 2:
        x[:, :_WIDTH] = highest[:_WIDTH]
    else:
        x[:, :_WIDTH, :_WIDTH] = highest.max()
    return x
