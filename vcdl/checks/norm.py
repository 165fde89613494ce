"""Compute the norm of a weight vector for the checks of uploads."""

import numpy as np

from vcdl.wire.layout import Layout, Vector

_BLOCK = 1 << 17


class NormMeter:
    """Computes the norm of a vector that is read in blocks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._square = 0.0
        self._is_finite = True

    def add(self, block: Vector, begin: int) -> None:
        """Add a block: the vector's numbers from index `begin` on."""
        with np.errstate(over="ignore", invalid="ignore"):
            for part, is_trained in self._layout.parts(begin, begin + block.size):
                # A NaN or an infinity anywhere in the block makes the sum of squares one too, so one test covers all
                # numbers.
                square = float(np.dot(block[part], block[part]))
                self._is_finite &= bool(np.isfinite(square))
                if is_trained:  # statistics grow tenfold in an honest training's first steps
                    self._square += square

    @property
    def norm(self) -> float:
        """‖W‖₂ without the statistics of batch normalisation.

        NaN if a number is not finite, or the sum of squares of a block overflows float32.
        """
        return float(np.sqrt(self._square)) if self._is_finite else float("nan")


def trained_norm(vector: Vector, layout: Layout) -> float:
    """Return the norm of a vector of shape (n,), as a NormMeter measures it."""
    meter = NormMeter(layout)
    for begin in range(0, vector.size, _BLOCK):
        meter.add(vector[begin : begin + _BLOCK], begin)
    return meter.norm
