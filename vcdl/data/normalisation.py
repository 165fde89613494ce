"""Measure on the training samples by which scale and offset clients normalise their inputs."""

from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.numbers import numbers_of
from vcdl.data.rows import Array, Inputs
from vcdl.wire.workunit import Normalisation

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

_CONSTANT = 1e-7
"""Relative spread up to which an input counts as a constant: about the precision of float32, so that scaling would only
amplify rounding errors."""


def normalisation_of(x: Inputs, settings: "DataSettings") -> Normalisation:
    """Return the normalisation of an input that `data > normalise` requires, measured on its training samples.

    `scale` maps to 0 … 1. `standardise` maps to mean 0 and variance 1, separately for each entry of the last axis, and
    for grey images as a whole. `auto` means `scale` for pictures (three axes or more, and whole numbers or within 0 …
    1) and for the samples of an autoencoder, and `standardise` otherwise.
    """
    if settings.normalise == "none":
        return Normalisation()
    measures = measures_moments(settings.normalise, x)
    numbers = numbers_of(x, moments=measures)
    low, high = float(numbers.low.min()), float(numbers.high.max())
    # Pictures within 0 to 1 stay as they are, because a pretrained model usually expects them so. Tables and series are
    # standardised (docs/decisions/120, with the measurements).
    are_pictures = x.ndim > 2 and (numbers.whole or (low >= 0 and high <= 1))
    if not measures or (settings.normalise == "auto" and (are_pictures or settings.task == "autoencoder")):
        return _affine(np.array([low]), np.array([high - low]))
    if numbers.mean is None or numbers.deviation is None:
        raise ValueError("moments were not measured: this is a bug in vcdl")
    return _affine(numbers.mean, numbers.deviation)


def measures_moments(normalise: str, x: Inputs) -> bool:
    """Return whether samples of shape (n, …) may be standardised.

    With `auto`, arrays of integers with three axes or more are pictures, which are scaled instead.
    """
    return normalise == "standardise" or (normalise == "auto" and (x.ndim < 3 or x.dtype.kind not in "biu"))


def _affine(zero: Array, unit: Array) -> Normalisation:
    """Return `(x − zero) / unit` as scale and offset; an input that is constant in float32 stays unscaled."""
    # Give a constant input scale 1: dividing by its spread would turn rounding errors into the model's largest input.
    scale = 1.0 / np.where(unit > _CONSTANT * np.abs(zero), unit, 1.0)
    return Normalisation(tuple(scale.tolist()), tuple((-zero * scale).tolist()))
