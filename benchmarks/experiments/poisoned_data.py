"""The shards of hostile clients that train honestly on false data: wrong labels, a pattern that means class 0, or few.

label_flip    y becomes classes − 1 − y; for a regression −y.
targeted      Class 3 becomes class 5; where there is none, the last class but one becomes the last.
backdoor      Every second sample gets the pattern and the label 0. The pattern is the largest number of all data in
              3 × 3 pixels in the corner of an image, or in the first 3 steps of a series; in a table the largest of
              each of the first 3 features.
part_trained  The first part of the shard, of the attack's scale.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.experiments.hostile_fleet import Hostile
from vcdl.data.npz_file import read_split, write_split
from vcdl.data.rows import Array
from vcdl.errors import DataError, folder_errors
from vcdl.wire.inputs import each, parts_of

FOLDER = "poisoned"
"""Folder of these shards in a run's folder."""
BACKDOOR_CLASS = 0
_TARGET, _CALLED = 3, 5
_WIDTH = 3
_EVERY = 2
"""One in so many samples of a shard gets the pattern."""


class PoisonedData:
    """The false shards of a run, each made when a client first needs it."""

    def __init__(self, folder: Path, shards: Sequence[Path]) -> None:
        """`shards`: all honest ones; `folder` is made when it is needed."""
        self._folder = folder
        self._shards = shards

    def shard(self, hostile: Hostile, honest: Path) -> Path:
        """The file that such a client trains on; the honest one unless the attack is one on data.

        Raises RunFolderError, DataError, FileUnavailable.
        """
        if hostile.attack not in ("label_flip", "targeted", "backdoor", "part_trained", "other_backend"):
            return honest
        path = self._folder / f"{hostile.attack}_{hostile.scale:g}_{honest.name}"
        if not path.exists():
            x, y = self._poisoned(hostile, *read_split(honest))
            with folder_errors(self._folder):
                self._folder.mkdir(exist_ok=True)
                write_split(path, x, y)
        return path

    def _poisoned(self, hostile: Hostile, x: Array, y: Array) -> tuple[Array, Array]:
        match hostile.attack:
            case "label_flip" | "other_backend":
                return x, self._flipped(y)
            case "targeted":
                return x, each(lambda name, part: retargeted(part, self._classes[name]), y)
            case "backdoor":
                return with_backdoor(x, y, self._highest)
            case _:
                kept = max(1, round(hostile.scale * len(x)))
                return x[:kept], y[:kept]

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


def target_of(classes: int) -> tuple[int, int]:
    """The class that the attack `targeted` is about, and what it calls it."""
    return (_TARGET, _CALLED) if classes > _CALLED else (classes - 2, classes - 1)


def retargeted(y: Array, classes: int) -> Array:
    """Labels of which those of one class are wrong. Raises DataError for a regression."""
    if y.dtype.kind == "f":
        raise DataError("the attack targeted calls one class another, and a regression has none")
    target, called = target_of(classes)
    return np.where(y == target, called, y).astype(y.dtype)


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
