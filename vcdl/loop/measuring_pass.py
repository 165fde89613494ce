"""The first pass over an upload, for a rule that must know all of it before any of it is folded in."""

import hashlib

import numpy as np

from vcdl.errors import FileUnavailable, WeightsFileError
from vcdl.rules.base import Measured, Update
from vcdl.rules.measuring import MeasuringRule
from vcdl.wire.weights import Layout, Vector, WeightsFile


class MeasuringPass:
    """Measures the step of one upload, block by block, and checks that the second pass folds in the same bytes."""

    def __init__(self, rule: MeasuringRule, layout: Layout, reference: WeightsFile | None) -> None:
        """`reference`: the reference update, for a rule that compares uploads with it."""
        self._rule = rule
        self._reference = reference
        self._statistics = tuple(layout.statistics)
        self._squares = np.zeros(3, np.float64)
        """⟨step, step⟩, ⟨reference, reference⟩, ⟨step, reference⟩."""
        self._measured, self._folded = hashlib.sha256(), hashlib.sha256()
        self._folded_bytes = 0

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block, the weights from number `begin` on. Raises FileUnavailable for the reference update."""
        self._measured.update(update.weights.data)
        step = self._trained(self._rule.step(w, update), begin)
        self._squares[0] += step @ step
        if self._reference is not None:
            block = np.empty(step.size, np.float32)
            try:
                self._reference.read(begin, block)
            except WeightsFileError as error:
                raise FileUnavailable(
                    f"the reference update cannot be read ({error}): the evaluator will write it again"
                ) from error
            reference = self._trained(block, begin)
            self._squares[1] += reference @ reference
            self._squares[2] += step @ reference

    def result(self, number: int, lengths: Vector) -> Measured:
        """The measures of update `number` after the last block.

        Its length takes its place among the `lengths` of the last updates, shape (s,).
        """
        step, reference, both = self._squares
        length = np.float32(np.sqrt(step))
        lengths[number % lengths.size] = length
        known = np.sort(lengths[lengths > 0])
        usual = float(known[(known.size - 1) // 2]) if known.size else 0.0
        if self._reference is None:
            return Measured(float(length), usual)
        cosine = float(both / np.sqrt(step * reference)) if step * reference > 0 else 0.0
        return Measured(float(length), usual, cosine)

    def note_folded(self, update: Update) -> None:
        """Note a block of the second pass."""
        self._folded.update(update.weights.data)
        self._folded_bytes += update.weights.nbytes

    @property
    def is_what_was_folded(self) -> bool:
        """Whether the second pass read the same bytes, known after its last block; true before its first."""
        return self._folded_bytes == 0 or self._measured.digest() == self._folded.digest()

    def _trained(self, block: Vector, begin: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """A block with zeros for statistics; in float64, so that a rounded sum does not depend on a library's order of
        addition."""
        for first, behind in self._statistics:
            block[max(0, first - begin) : max(0, behind - begin)] = 0.0
        return block.astype(np.float64)
