"""The first pass over an upload, for bounds or a rule that must know all of it before any of it is folded in."""

import hashlib

import numpy as np
import numpy.typing as npt

from vcdl.loop.reference_file import Reference
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.bounds import Bounds, Shortened
from vcdl.rules.measuring import MeasuringRule, usual_of
from vcdl.rules.state import LENGTHS
from vcdl.wire.weights import Layout, Vector

_Numbers = npt.NDArray[np.float64]


class MeasuringPass:
    """Measures the step of one upload, block by block, and proves that the second pass folds the same bytes in."""

    def __init__(
        self,
        rule: Rule,
        bounds: Bounds | None,
        layout: Layout,
        reference: Reference | None,
        *,
        reads_twice: bool = True,
    ) -> None:
        """`reference`: the reference update, for a rule or a check that compares uploads with it.

        `reads_twice`: whether the second pass reads the file again, which somebody may have changed meanwhile.
        """
        self._reads_twice = reads_twice
        self._rule = rule if isinstance(rule, MeasuringRule) else None
        self._bounds = bounds
        self._reference = reference
        self._layout = layout
        self._to_the_rule = np.zeros(3)
        """⟨step, step⟩, ⟨reference, reference⟩, ⟨step, reference⟩ for the rule's step."""
        self._variables = None if bounds is None else bounds.sums()
        """⟨C − B, C − B⟩ of each variable, with bounds."""
        self._is_measured = False
        """Whether its variables were measured as a whole."""
        self._way = np.zeros(3)
        """⟨C − B, C − B⟩, ⟨W − B, W − B⟩, ⟨C − B, W − B⟩ over the trained weights."""
        self._along = np.zeros(2)
        """⟨r, r⟩, ⟨C − B, r⟩ over the trained weights for the reference update r."""
        self._looked_at, self._folded = hashlib.sha256(), hashlib.sha256()
        self._folded_bytes = 0

    def add_whole(self, weights: Vector, base: Vector) -> None:
        """Measure all of an upload, shape (n,), as far as that needs no W. Its blocks come afterwards."""
        if self._bounds is not None and self._variables is not None:
            self._bounds.measure(self._variables, weights, base, 0)
            self._is_measured = True

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block, the weights from number `begin` on. Raises FileUnavailable for the reference update."""
        if self._reads_twice:
            self._looked_at.update(update.weights.data)
        reference = None if self._reference is None else self._reference.block(begin, update.weights.size)
        if self._variables is not None and self._bounds is not None:
            if not self._is_measured:
                self._bounds.measure(self._variables, update.weights, update.started_from, begin)
            self._measure_directions(w if w.ndim == 1 else w[0], update, reference, begin)
        if self._rule is not None:
            measured = self._trained(self._rule.step(w, update), begin)
            self._to_the_rule[0] += measured @ measured
            if reference is not None:
                compared = self._trained(reference.copy(), begin)
                self._to_the_rule[1:] += (compared @ compared, measured @ compared)

    def note_folded(self, update: Update) -> None:
        """Note a block of the second pass."""
        if not self._reads_twice:
            return
        self._folded.update(update.weights.data)
        self._folded_bytes += update.weights.nbytes

    def measured(self, number: int, lengths: Vector) -> Measured | None:
        """The rule's measures of update `number` after the last block; None for a rule without any.

        The length takes its place among the `lengths` of the last updates, shape (s,).
        """
        if self._rule is None:
            return None
        step, reference, both = self._to_the_rule
        length = np.float32(np.sqrt(step))
        lengths[number % LENGTHS] = length
        usual = float(usual_of(lengths[:, None])[0])
        if self._reference is None:
            return Measured(float(length), usual)
        cosine = float(both / np.sqrt(step * reference)) if step * reference > 0 else 0.0
        return Measured(float(length), usual, cosine)

    def shortened(self, number: int, table: Vector, rate: float) -> Shortened | None:
        """What the bounds make of update `number`, trained at `rate` times the job's peak; None without bounds.

        Its lengths take their row in the `table` (vcdl.rules.state).
        """
        if self._bounds is None or self._variables is None:
            return None
        row = self._bounds.lengths(self._variables, rate)
        return self._bounds.shortened(table, number, row, self._variables.floors)

    @property
    def cosine(self) -> float | None:
        """Cosine of the client's step with the way that the shared weights went since its base; None without one."""
        step, moved, both = self._way
        return float(both / np.sqrt(step * moved)) if step * moved > 0 else None

    @property
    def reference_cosine(self) -> float | None:
        """Cosine of the client's step with the reference update; None without one."""
        (step, _, _), (reference, both) = self._way, self._along
        return float(both / np.sqrt(step * reference)) if step * reference > 0 else None

    @property
    def is_what_was_folded(self) -> bool:
        """Whether the second pass read the same bytes, known after its last block; true before its first."""
        return self._folded_bytes == 0 or self._looked_at.digest() == self._folded.digest()

    def _measure_directions(self, w: Vector, update: Update, reference: Vector | None, begin: int) -> None:
        """Compare the step with the way of W since the client's base, and with the reference update.

        Only refusals depend on it, which are not made again: the order of a library's addition does not matter.
        """
        weights, base = update.weights, update.started_from
        for part, is_trained in self._layout.parts(begin, begin + weights.size):
            if is_trained:
                a, b = weights[part] - base[part], w[part] - base[part]
                self._way += (np.dot(a, a), np.dot(b, b), np.dot(a, b))
                if reference is not None:
                    c = reference[part]
                    self._along += (np.dot(c, c), np.dot(a, c))

    def _trained(self, block: Vector, begin: int) -> _Numbers:
        """A block with zeros for statistics; in float64, so that a rounded sum does not depend on a library's order of
        addition."""
        for first, behind in self._layout.statistics:
            block[max(0, first - begin) : max(0, behind - begin)] = 0.0
        return block.astype(np.float64)
