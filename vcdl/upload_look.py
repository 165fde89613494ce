"""The first pass over an upload, for a rule that must know something of all of it before any of it is folded in."""

import hashlib

import numpy as np

from vcdl.errors import StoreUnavailable, WeightsFileError
from vcdl.rules import Measured, MeasuringRule, Update
from vcdl.weights import Layout, Vector, WeightsFile


class UploadLook:
    """Measures the step of one upload, block by block; and sees that what is folded in afterwards is what was measured."""

    def __init__(self, rule: MeasuringRule, layout: Layout, room: int, held_out: WeightsFile | None) -> None:
        """`room`: weights of the largest block; `held_out`: the step of held-out data, for a rule that asks for it."""
        self._rule = rule
        self._held_out = held_out
        self._statistics = tuple(layout.statistics)
        self._step = np.empty(room, np.float32)
        self._other = np.empty(room if held_out is not None else 0, np.float32)
        self._squares = np.zeros(3, np.float64)
        """⟨step, step⟩, ⟨held-out, held-out⟩, ⟨step, held-out⟩."""
        self._seen, self._folded = hashlib.sha256(), hashlib.sha256()
        self._folded_bytes = 0

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Take in a block, the weights from number `begin` on. Raises StoreUnavailable when the held-out step cannot be read."""
        self._seen.update(update.weights.data)
        step = self._step[: update.weights.size]
        self._rule.step(w, update, step)
        self._leave_statistics_out(step, begin)
        # In float64, so that the sum, rounded in the end, does not depend on the order in which a library adds.
        trained = step.astype(np.float64)
        self._squares[0] += trained @ trained
        if self._held_out is not None:
            other = self._other[: step.size]
            try:
                self._held_out.read(begin, other)
            except WeightsFileError as error:
                raise StoreUnavailable(
                    f"the step of held-out data cannot be read ({error}): the evaluator will make it anew"
                ) from error
            self._leave_statistics_out(other, begin)
            direction = other.astype(np.float64)
            self._squares[1] += direction @ direction
            self._squares[2] += trained @ direction

    def measured(self, number: int, lengths: Vector) -> Measured:
        """After the last block: of the update `number`, which takes its place among the `lengths` of the last ones, shape (s,)."""
        step, other, both = self._squares
        length = np.float32(np.sqrt(step))
        lengths[number % lengths.size] = length
        known = np.sort(lengths[lengths > 0])
        usual = float(known[(known.size - 1) // 2]) if known.size else 0.0
        if self._held_out is None:
            return Measured(float(length), usual)
        return Measured(float(length), usual, float(both / np.sqrt(step * other)) if step * other > 0 else 0.0)

    def fold(self, update: Update) -> None:
        """Take note of a block that is folded in."""
        self._folded.update(update.weights.data)
        self._folded_bytes += update.weights.nbytes

    @property
    def is_what_was_folded(self) -> bool:
        """After the last block was folded in; true before the first."""
        return self._folded_bytes == 0 or self._seen.digest() == self._folded.digest()

    def _leave_statistics_out(self, block: Vector, begin: int) -> None:
        for first, behind in self._statistics:
            block[max(0, first - begin) : max(0, behind - begin)] = 0.0
