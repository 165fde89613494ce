"""Compare two uploads of one subtask: were both trained from the same weights, on the same shard, with the same seed?

Rounding differs between processors, thread counts and versions of TensorFlow, and training amplifies it. So the
distance of the two is compared with the length of the step that both made from their base B:

    ‖C1 − C2‖ ≤ TOLERANCE · max(‖C1 − B‖, ‖C2 − B‖)

for all trained weights together. Every other variable (statistics of batch normalisation, moments of the optimizer) is
compared separately: a counter among them would hide the others. Variables with a twentieth of these numbers may differ:
where a gradient is only rounding, as for a bias before batch normalisation, so is everything computed from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcdl.checks.upload_reader import open_upload
from vcdl.codecs.base import CHUNK
from vcdl.codecs.encoding import Encoding
from vcdl.wire.layout import Vector

TOLERANCE = 0.1
"""Largest distance of honest uploads, as a fraction of the longer step. See docs/trust.md, "Re-execution", for the
measurements."""
_MAY_DIFFER = 0.05
"""Fraction of the untrained numbers that may differ."""


@dataclass(frozen=True)
class Disagreement:
    """Distances of two uploads as fractions of the longer step: 0 if equal to the last bit, 1 if only one moved."""

    trained: float
    rest: float
    """The largest distance of another variable, after ignoring variables with a fraction _MAY_DIFFER of the numbers."""

    @property
    def most(self) -> float:
        """The larger of the two distances."""
        return float(np.max([self.trained, self.rest]))

    @property
    def is_rounding(self) -> bool:
        """Whether rounding alone could explain the difference."""
        return self.most <= TOLERANCE


def disagreement(first: Path, second: Path, base: Path, encoding: Encoding) -> Disagreement:
    """Return how far two uploads of one subtask are apart, as fractions of the longer of their steps.

    Args:
        first: An upload.
        second: Another upload of the same subtask.
        base: The snapshot that both started from.
        encoding: How their weights are encoded.

    Raises:
        Refused: An upload cannot be read.
        FileUnavailable: A file cannot be read on this machine.
    """
    layout = encoding.layout
    others = [variable for variable in layout.variables if not variable.is_trained]
    # Compute in float64: the distance of two honest uploads is millionths of the step that it is compared with.
    sums = np.zeros((1 + len(others), 3))
    """Sums of squares, for the trained weights and each other variable: their distance, and both steps."""
    buffers = np.empty((2, min(CHUNK, layout.size)), np.float32)
    with open_upload(first, encoding, base) as one, open_upload(second, encoding, base) as other:
        for begin in range(0, layout.size, CHUNK):
            block, opposite = (room[: layout.size - begin] for room in buffers)
            started_from = one.read(begin, block)
            other.read(begin, opposite)
            if started_from is None:
                raise ValueError("an upload was opened without its base: this is a bug in vcdl")
            vectors = block, opposite, started_from
            for part, is_trained in layout.parts(begin, begin + block.size):
                if is_trained:
                    sums[0] += _squares(*(vector[part] for vector in vectors))
            for row, variable in enumerate(others, start=1):
                part = slice(max(variable.offset - begin, 0), max(variable.offset + variable.size - begin, 0))
                sums[row] += _squares(*(vector[part] for vector in vectors))
    trained, *rest = (_share(*row) for row in sums.tolist())
    return Disagreement(trained, _most(rest, [variable.size for variable in others]))


def _most(measures: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the largest distance, ignoring variables with at most a fraction _MAY_DIFFER of the numbers in total."""
    left = _MAY_DIFFER * sum(sizes)
    # Ignore the largest distances first, as long as their variables together have few numbers.
    for place in np.argsort(measures)[::-1]:  # NaN comes first
        left -= sizes[place]
        if left < 0 or np.isnan(measures[place]):
            return float(measures[place])
    return 0.0


def _squares(one: Vector, other: Vector, base: Vector) -> tuple[float, float, float]:
    """Return the squared distance of two uploads, and the squared lengths of their steps from `base`."""
    return _square(one, other), _square(one, base), _square(other, base)


def _square(one: Vector, other: Vector) -> float:
    difference = one.astype(np.float64) - other
    return float(difference @ difference)


def _share(apart: float, one: float, other: float) -> float:
    """Return a distance as a fraction of the longer step; all three are given as squares."""
    # Divide by the longer step, so that an upload without a step cannot make the other one look infinitely far.
    length = max(one, other)
    return 0.0 if apart == 0 else float("inf") if length == 0 else (apart / length) ** 0.5
