"""Count and draw a confusion matrix: how often samples of each class are predicted as each class."""

import csv
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vcdl.errors import printable
from vcdl.files.atomic import whole_file
from vcdl.report.plot import new_figure
from vcdl.report.wording import group_digits

MOST_CLASSES = 1000
"""Classes of the largest matrix that is counted: a file of 2 MB."""
MOST_DRAWN = 50
"""Classes of the largest matrix that is drawn, since names would overlap in a larger one."""
_MOST_NUMBERED = 20
"""Classes of the largest matrix with a number in each cell, since smaller cells have no room."""
_CELL_INCHES, _SMALL_CELL_INCHES, _LEAST_INCHES = 0.42, 0.17, 3.0
"""Sides of a cell with a number and of one without, and the least side of the matrix."""
_MARGIN_INCHES, _LETTER_INCHES = 0.6, 0.08
_FONT = 8
"""Points of the font."""
_LONGEST_NAME = 24
"""Characters of a class's name, so that names do not take more room than the matrix."""
_DOTS_PER_INCH = 150
"""Resolution, high enough to be sharp on a screen."""
_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ConfusionMatrix:
    """Counts of samples by their class (rows) and by their predicted class (columns)."""

    counts: npt.NDArray[np.int64]
    """Shape (classes, classes)."""
    names: tuple[str, ...]
    """The classes, in the order of rows and columns."""

    @classmethod
    def of(cls, batches: Iterable[tuple[_Array, _Array]], names: Sequence[str], threshold: float = 0.5) -> Self:
        """Count the samples of all batches. Labels that are no class of the model are left out.

        Args:
            batches: Labels, shape (n, …), and the model's outputs, shape (n, …, classes) or (n, …, 1).
            names: Names of the classes; classes beyond them are named by their number.
            threshold: Value above which a single output means class 1.
        """
        counts = np.zeros((0, 0), np.int64)
        for y, outputs in batches:
            # A model with a class for each place of a sequence or an image counts each place.
            y, outputs = y.reshape(-1), outputs.reshape(-1, outputs.shape[-1])
            is_one = outputs.shape[1] == 1
            classes = 2 if is_one else outputs.shape[1]
            given = (outputs[:, 0] > threshold).astype(np.int64) if is_one else outputs.argmax(axis=1)
            # A missing label is negative, and a label beyond the model's outputs belongs to no column.
            is_class = (y >= 0) & (y < classes)
            # One number for each pair (row, column), so that a single bincount counts a batch.
            pairs = y[is_class].astype(np.int64) * classes + given[is_class]
            counted = np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
            counts = counted if not counts.size else counts + counted
        numbered = [str(number) for number in range(len(names), len(counts))]
        return cls(counts, (*names[: len(counts)], *numbered))

    def write(self, path: Path) -> None:
        """Write the numbers as CSV, atomically. Raises RunFolderError."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(("true class", *self.names))
        rows.writerows((name, *counts) for name, counts in zip(self.names, self.counts.tolist(), strict=True))
        with whole_file(path) as temporary:
            temporary.write_text(text.getvalue(), encoding="utf-8")

    def draw(self, path: Path, title: str) -> None:
        """Write a picture of the matrix atomically; a cell's colour is its part of the row. Raises RunFolderError."""
        size = len(self.names)
        # Matplotlib reads `$…$` as mathematics, and fails for what is none.
        names = [printable(name).replace("$", r"\$")[:_LONGEST_NAME] for name in self.names]
        longest = max(map(len, names))
        side = max(_LEAST_INCHES, size * (_CELL_INCHES if size <= _MOST_NUMBERED else _SMALL_CELL_INCHES))
        margin = _MARGIN_INCHES + longest * _LETTER_INCHES
        whole = margin + side + _MARGIN_INCHES
        # Place the axes without Matplotlib's layout, which would shrink the cells for long names: numbers would not
        # fit.
        figure = new_figure(whole, whole, layout=None)
        axes = figure.add_axes((margin / whole, margin / whole, side / whole, side / whole))
        # At least 1: a class without a sample has a row of zeros.
        shares = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(size), names, rotation=0 if longest <= 2 else 90, fontsize=_FONT)
        axes.set_yticks(range(size), names, fontsize=_FONT)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        words = f"{group_digits(self.counts.sum())} samples, accuracy {self.accuracy:.4g}"
        axes.set_title(f"{title}\n{words}", fontsize=_FONT + 1)
        # Cells of 0 stay empty, so that the eye finds the mistakes.
        if size <= _MOST_NUMBERED:
            for row, column in np.argwhere(self.counts):
                colour, count = "white" if shares[row, column] > 0.5 else "black", str(self.counts[row, column])
                axes.text(column, row, count, ha="center", va="center", color=colour, fontsize=_FONT)
        with whole_file(path) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a name with letters that the font lacks
            figure.savefig(temporary, dpi=_DOTS_PER_INCH)

    @property
    def accuracy(self) -> float:
        """The accuracy: the fraction of samples on the diagonal; 0 without samples."""
        return float(np.trace(self.counts) / max(1, self.counts.sum()))
