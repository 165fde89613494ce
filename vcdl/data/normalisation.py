"""Measure on the training samples how clients normalise their inputs."""

from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.numbers import numbers_of
from vcdl.data.rows import Array, Inputs, Numbers
from vcdl.wire.workunit import Normalisation

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

_SMALL_SPAN = 0.1
"""Share of the whole range that a column spans at most if it counts as small."""
_CONSTANT = 1e-7
"""Share of its size that an input differs by at most if float32 holds it as a constant; more would be noise, scaled."""


def normalisation_of(x: Inputs, settings: "DataSettings") -> Normalisation:
    """The normalisation that `data > normalise` asks for, measured on `x`, training samples of an input.

    `scale`: to 0 … 1. `standardise`: mean 0 and variance 1, per entry of the last axis; grey images as a whole. `none`.
    `auto`: `standardise` for a table whose columns differ much in size, else `scale`.
    """
    if settings.normalise == "none":
        return Normalisation()
    numbers = numbers_of(x)
    low, high = float(numbers.low.min()), float(numbers.high.max())
    if settings.normalise == "scale" or (settings.normalise == "auto" and not (x.ndim == 2 and _is_uneven(numbers))):
        return _affine(np.array([low]), np.array([high - low]))
    numbers = numbers_of(x, moments=True)
    if numbers.mean is None or numbers.deviation is None:
        raise ValueError("moments were not measured: this is a bug in vcdl")
    return _affine(numbers.mean, numbers.deviation)


def _is_uneven(table: Numbers) -> bool:
    """Whether one scale for all columns of a table would leave most of them near zero."""
    spans = table.high.astype(np.float64) - table.low
    spans = spans[spans > 0]
    whole_span = float(table.high.max()) - float(table.low.min())
    return bool(np.mean(spans < _SMALL_SPAN * whole_span) > 0.5) if spans.size else False


def _affine(zero: Array, unit: Array) -> Normalisation:
    """`(x − zero) / unit` as scale and offset; an input that is constant in float32 stays unscaled."""
    scale = 1.0 / np.where(unit > _CONSTANT * np.abs(zero), unit, 1.0)
    return Normalisation(tuple(scale.tolist()), tuple((-zero * scale).tolist()))
