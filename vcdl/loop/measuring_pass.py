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
        self._sums = None if bounds is None else bounds.sums()
        """The measures of each variable, with bounds."""
        self._is_measured = False
        """Whether its variables were measured as a whole."""
        self.cosine: float | None = None
        """Cosine of the shortened step with the way of the shared weights since its base, known when it is shortened;
        None without one.
        """
        self.reference_cosine: float | None = None
        """Its cosine with the reference update, likewise."""
        self._looked_at, self._folded = hashlib.sha256(), hashlib.sha256()
        self._folded_bytes = 0

    def add_whole(self, weights: Vector, base: Vector) -> None:
        """Measure all of an upload, shape (n,), as far as that needs no W. Its blocks come afterwards."""
        if self._bounds is not None and self._sums is not None:
            self._bounds.measure(self._sums, weights, base, 0)
            self._is_measured = True

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block, the weights from number `begin` on. Raises FileUnavailable for the reference update."""
        if self._reads_twice:
            self._looked_at.update(update.weights.data)
        reference = None if self._reference is None else self._reference.block(begin, update.weights.size)
        if self._sums is not None and self._bounds is not None:
            weights, base, shared = update.weights, update.started_from, w if w.ndim == 1 else w[0]
            if not self._is_measured:
                self._bounds.measure(self._sums, weights, base, begin)
            self._bounds.measure_directions(self._sums, weights, base, shared, reference, begin)
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

    def shortened(self, number: int, table: Vector, rate: float, *, is_measure: bool) -> Shortened | None:
        """What the bounds make of update `number`, trained at `rate` times the job's peak; None without bounds.

        Its lengths take their row in the `table` (vcdl.rules.state), if it is a measure for others.
        """
        if self._bounds is None or self._sums is None:
            return None
        row = self._bounds.lengths(self._sums, rate)
        shortened = self._bounds.shortened(table, number, row, self._sums.floors, is_measure=is_measure)
        with np.errstate(over="ignore", invalid="ignore"):
            self.cosine, self.reference_cosine = self._bounds.cosines(self._sums, shortened.factors)
        return shortened

    @property
    def is_what_was_folded(self) -> bool:
        """Whether the second pass read the same bytes, known after its last block; true before its first."""
        return self._folded_bytes == 0 or self._looked_at.digest() == self._folded.digest()

    def _trained(self, block: Vector, begin: int) -> _Numbers:
        """A block with zeros for statistics; in float64, so that a rounded sum does not depend on a library's order of
        addition."""
        for first, behind in self._layout.statistics:
            block[max(0, first - begin) : max(0, behind - begin)] = 0.0
        return block.astype(np.float64)
