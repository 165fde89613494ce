"""The first pass over an upload, for bounds that must know all of it before any of it is folded in."""

import hashlib

import numpy as np

from vcdl.rules.base import Update
from vcdl.trust.bounds import Bounds, Limits
from vcdl.trust.reference_file import Reference
from vcdl.wire.weights import Vector


class MeasuringPass:
    """Measures the step of one upload, block by block, and proves that the second pass folds the same bytes in."""

    def __init__(self, bounds: Bounds, reference: Reference | None, *, reads_twice: bool = True) -> None:
        """`reference`: the reference update, for a check that compares uploads with it.

        `reads_twice`: whether the second pass reads the file again, which somebody may have changed meanwhile.
        """
        self._reads_twice = reads_twice
        self._bounds = bounds
        self._reference = reference
        self._sums = bounds.sums()
        """The measures of each variable."""
        self.cosine: float | None = None
        """Cosine of the shortened step with the way of the shared weights since its base; None without one."""
        self.reference_cosine: float | None = None
        """Its cosine with the reference update, likewise."""
        self._looked_at, self._folded = hashlib.sha256(), hashlib.sha256()
        self._folded_bytes = 0

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block, the weights from number `begin` on. Raises FileUnavailable for the reference update."""
        if self._reads_twice:
            self._looked_at.update(update.weights.data)
        reference = None if self._reference is None else self._reference.block(begin, update.weights.size)
        self._bounds.measure(self._sums, update.weights, update.started_from, begin, w, reference)

    def note_folded(self, update: Update) -> None:
        """Note a block of the second pass."""
        if not self._reads_twice:
            return
        self._folded.update(update.weights.data)
        self._folded_bytes += update.weights.nbytes

    def limits(self, number: int, table: Vector, rate: float, *, is_measure: bool) -> Limits:
        """The bounds' verdict on update `number`, trained at `rate` times the job's peak.

        Its lengths take their row in the `table` (vcdl.rules.state), if it is a measure for others.
        """
        row = self._bounds.step_norms(self._sums, rate)
        limits = self._bounds.limits(table, number, row, self._sums.scale_floors, is_measure=is_measure)
        with np.errstate(over="ignore", invalid="ignore"):
            self.cosine, self.reference_cosine = self._bounds.cosines(self._sums, limits.factors)
        return limits

    @property
    def is_what_was_folded(self) -> bool:
        """Whether the second pass read the same bytes, known after its last block; true before its first."""
        return self._folded_bytes == 0 or self._looked_at.digest() == self._folded.digest()
