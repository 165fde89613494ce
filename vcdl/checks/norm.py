"""How long a vector of weights is, as the checks measure it."""

from collections.abc import Iterator

import numpy as np

from vcdl.weights import Layout, Vector

_STATISTICS = ("moving_mean", "moving_variance")
"""Of batch normalisation: they follow the data, and grow tenfold in the first steps of an honest training."""
_BLOCK = 1 << 17


class NormMeter:
    """Measures a vector that comes in blocks, in order."""

    def __init__(self, layout: Layout) -> None:
        self._square = 0.0
        self._is_finite = True
        self._statistics = statistics(layout)
        self._next = next(self._statistics, None)

    def add(self, block: Vector, begin: int) -> None:
        """Take in a block of the vector, the weights from number `begin` on."""
        with np.errstate(over="ignore", invalid="ignore"):
            whole = _square(block)
            self._is_finite &= bool(np.isfinite(whole))
            is_trained = self._next is None or self._next[0] >= begin + block.size
            self._square += whole if is_trained else self._square_of_trained(block, begin)

    def _square_of_trained(self, block: Vector, begin: int) -> float:
        square, trained, end = 0.0, begin, begin + block.size
        while self._next is not None and self._next[0] < end:
            first, behind = self._next
            square += _square(block[trained - begin : max(first, begin) - begin])
            trained = min(behind, end)
            if behind > end:  # the next block begins in the middle of it
                break
            self._next = next(self._statistics, None)
        return square + _square(block[trained - begin :])

    @property
    def norm(self) -> float:
        """‖W‖₂ without the statistics of batch normalisation; NaN when any number of the vector is NaN or infinite.

        A sum of squares is finite only when every number is, and none is absurdly large.
        """
        return float(np.sqrt(self._square)) if self._is_finite else float("nan")


def trained_norm(vector: Vector, layout: Layout) -> float:
    """What a NormMeter says of a vector of shape (n,)."""
    meter = NormMeter(layout)
    for begin in range(0, vector.size, _BLOCK):
        meter.add(vector[begin : begin + _BLOCK], begin)
    return meter.norm


def statistics(layout: Layout) -> Iterator[tuple[int, int]]:
    """Begin and end of each variable that is not trained, in order."""
    for variable in layout.variables:
        if variable.path.endswith(_STATISTICS):
            yield variable.offset, variable.offset + variable.size


def _square(part: Vector) -> float:
    return float(np.dot(part, part))
