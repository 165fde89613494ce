"""Measure on the training samples how clients normalise their inputs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.dataset import Array
from vcdl.wire.workunit import Normalisation

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

_SMALL_SPAN = 0.1
"""Share of the whole range that a column spans at most if it counts as small."""
_CONSTANT = 1e-7
"""Share of its size that an input differs by at most if float32 holds it as a constant; more would be noise, scaled."""
_ROWS = 4096
"""Rows that are converted at a time: integer images never become floats as a whole."""


def normalisation_of(x: Array, settings: "DataSettings") -> Normalisation:
    """The normalisation that `data > normalise` asks for, measured on `x`, the training samples of an input, alone.

    `scale`: the smallest number becomes 0 and the largest 1. `standardise`: mean 0 and variance 1, per entry of
    the last axis (a channel, a feature); grey images without a channel axis as a whole. `none`: unchanged. `auto`:
    `standardise` for a table whose columns differ much in size, else `scale`. Data of a model that takes whole numbers
    do not come here.
    """
    if settings.normalise == "none":
        return Normalisation()
    if settings.normalise == "scale" or (settings.normalise == "auto" and not _is_uneven(x)):
        low, high = float(x.min()), float(x.max())
        return _affine(np.array([low]), np.array([high - low]))
    return _affine(*_mean_and_deviation(x))


def _is_uneven(x: Array) -> bool:
    """Whether one scale for all columns of a table would leave most of them near zero."""
    if x.ndim != 2:
        return False
    spans = x.max(axis=0).astype(np.float64) - x.min(axis=0)
    spans = spans[spans > 0]
    return bool(np.mean(spans < _SMALL_SPAN * (float(x.max()) - float(x.min()))) > 0.5) if spans.size else False


def _affine(zero: Array, unit: Array) -> Normalisation:
    """`(x − zero) / unit` as scale and offset; an input that is constant in float32 stays unscaled."""
    scale = 1.0 / np.where(unit > _CONSTANT * np.abs(zero), unit, 1.0)
    return Normalisation(tuple(scale.tolist()), tuple((-zero * scale).tolist()))


def _mean_and_deviation(x: Array) -> tuple[Array, Array]:
    """Mean and deviation per entry of the last axis, in float64 and two passes, so that large means cost no
    precision.
    """
    mean = sum((rows.sum(axis=0) for rows in _rows(x)), np.float64(0)) / (x.size // _width(x))
    variance = sum((np.square(rows - mean).sum(axis=0) for rows in _rows(x)), np.float64(0)) / (x.size // _width(x))
    return np.asarray(mean), np.sqrt(variance)


def _width(x: Array) -> int:
    grey_images = x.ndim == 3 and x.dtype.kind in "ui"
    return 1 if grey_images else x.shape[-1]


def _rows(x: Array) -> Iterator[Array]:
    for first in range(0, len(x), _ROWS):
        yield x[first : first + _ROWS].reshape(-1, _width(x)).astype(np.float64)
