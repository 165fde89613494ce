"""Make folds whose outcome depends on their order, and compute it without a store, for tests of stores."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcdl.errors.refusal import Refusal, Refused
from vcdl.stores import Change, Fold
from vcdl.wire.layout import Vector

SIZE = 1000
"""Number of weights in a test's store, unless a test says otherwise."""


@dataclass
class FoldedUpload(Change):
    """An upload in memory, which is applied by VC-ASGD with α = 0.9; with `refusal` it is refused after it was read."""

    weights: Vector
    staleness: int
    refusal: Refusal | None = None

    def apply(self, w: Vector, begin: int) -> float:
        return _fold_in_place(w, self.weights[begin : begin + w.size])

    @property
    def refused(self) -> Refused | None:
        return None if self.refusal is None else Refused(self.refusal, "for a test")


@dataclass
class Changed(Change):
    """A change of W by `change(w, staleness)`, which changes `w` in place and returns the weight of the fold."""

    change: Callable[[Vector, int], float]
    staleness: int

    def apply(self, w: Vector, begin: int) -> float:
        return self.change(w, self.staleness)


def subtask(number: int) -> str:
    return f"e0001_s{number:03d}"


def workunit(number: int, attempt: int = 0, base_version: int = 0) -> str:
    return f"j_{subtask(number)}_a{attempt}_v{base_version:06d}"


def weights(seed: int, size: int = SIZE) -> Vector:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def fold(
    number: int, attempt: int = 0, base_version: int = 0, size: int = SIZE, refusal: Refusal | None = None
) -> Fold:
    """Return the fold of subtask `number`, whose client's weights are `weights(number + 1)`.

    Args:
        number: The number of the subtask.
        attempt: The attempt at the subtask, which is a part of the workunit's name.
        base_version: The version that the client started from.
        size: Number of weights.
        refusal: Why the upload is refused once it has been read; None: it is accepted.
    """

    def begin(staleness: int) -> Change:
        return FoldedUpload(weights(number + 1, size), staleness, refusal)

    return Fold(subtask(number), workunit(number, attempt, base_version), base_version, begin)


def changing(name: str, change: Callable[[Vector, int], float], base_version: int = 0) -> Fold:
    """Return a fold that changes W in place by a function of the test.

    Args:
        name: Name of the subtask and of the workunit.
        change: Called with W and the staleness; it returns the weight of the fold.
        base_version: The version that the client started from.
    """
    return Fold(name, name, base_version, lambda staleness: Changed(change, staleness))


def interrupted(interruption: Callable[[], object], number: int) -> Fold:
    """Return the fold of subtask `number` that calls `interruption` after the store has read W and before it writes."""

    def change(w: Vector, staleness: int) -> float:
        interruption()
        return FoldedUpload(weights(number + 1), staleness).apply(w, 0)

    return Fold(subtask(number), workunit(number), 0, lambda staleness: Changed(change, staleness))


def replayed(*numbers: int, size: int = SIZE) -> Vector:
    """Return the weights that a store must have after the folds of these numbers, one by one in this order."""
    vector = weights(0, size)
    for number in numbers:
        _fold_in_place(vector, weights(number + 1, size))
    return vector


def _fold_in_place(w: Vector, client: Vector) -> float:
    """Apply an upload in place by VC-ASGD with α = 0.9, and return 1 − α."""
    w *= np.float32(0.9)
    w += np.float32(0.1) * client
    return 0.1
