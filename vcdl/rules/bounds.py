"""Bounds on the uploads of strangers: no variable may move further than honest training usually moves it.

Everything that is shared is bounded, variable by variable: trained weights, the statistics of batch normalisation, the
moments of optimizers. A limit on the whole step alone (Sun et al. 2019, *Can You Really Backdoor Federated Learning?*,
arXiv 1911.07963) leaves room for a step of the usual length in one small variable, an output's bias say, and for any
value in what is no weight. docs/decisions/025 has the measurements behind the constants.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vcdl.rules.base import Rule
from vcdl.rules.measuring import usual_of
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.wire.weights import Layout, Variable, Vector

_Numbers = npt.NDArray[np.float64]

_FLOOR = 0.1
"""Part of a variable's mean by which its smallest numbers are measured, if none of it may be negative."""
_TINY = 1e-12


@dataclass(frozen=True)
class Shortened:
    """What the bounds make of one upload."""

    factors: Vector
    """κ of each variable, shape (v,), in [0, 1]: the client's step counts κ times."""
    limits: Vector
    """The longest step of each variable, shape (v,)."""
    length: float
    """‖C − B‖ over the trained weights, at the job's peak learning rate."""
    usual: float
    """The median of the last ones; 0 before there is any."""
    furthest: float
    """The step of the variable that moved furthest, in its usual lengths."""


@dataclass(frozen=True)
class Bounds:
    """Shortens the step of each variable to `clip` times its usual length, `C' = B + κ·(C − B)`.

    Variances and second moments, which are never negative, are measured and limited number by number, relative to what
    they are: training divides by their roots, so that the small ones matter most.

    The usual length is the median of the last 50 uploads'. A trained variable's length is divided by the rate of its
    workunit first, because late in a job honest steps are short, and a long one would undo what was learned. The
    table of lengths lies behind W in the store (vcdl.rules.state): a row an update, the whole step in its first
    column, then a column a variable.
    """

    layout: Layout
    clip: float
    first_row: tuple[float, ...]
    """Lengths as of `lengths_of`: those of the server's own step on held-out data, before any client is known."""

    @cached_property
    def _variables(self) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.layout.variables if variable.size)

    @cached_property
    def _begins(self) -> npt.NDArray[np.int64]:
        return np.array([variable.offset for variable in self._variables], np.int64)

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.array([variable.offset + variable.size for variable in self._variables], np.int64)

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64]:
        return self._ends - self._begins

    @cached_property
    def _is_trained(self) -> npt.NDArray[np.bool_]:
        return np.array([variable.is_trained for variable in self._variables], np.bool_)

    @cached_property
    def _is_nonnegative(self) -> npt.NDArray[np.bool_]:
        return np.array([variable.is_nonnegative for variable in self._variables], np.bool_)

    def state_of(self, rule: Rule) -> RuleState:
        """The state of a bounded rule: its own, and the table."""
        return replace(rule.state, first_row=self.first_row)

    def lengths_of(self, step: Vector, base: Vector, rate: float) -> Vector:
        """The row of a whole step in memory, shape (n,), from its base."""
        squares = self.squares()
        self.measure(squares, step, base, 0)
        return self.lengths(squares, rate)

    def lengths(self, squares: _Numbers, rate: float) -> Vector:
        """A row of the table from the squares of a whole step, shape (v,)."""
        squares = np.where(self._is_trained, squares / rate**2, squares)
        squares = np.where(self._is_nonnegative, squares / self._sizes, squares)
        lengths = np.sqrt(np.concatenate([[squares[self._is_trained].sum()], squares]))
        row: Vector = lengths.astype(np.float32)
        return row

    def squares(self) -> _Numbers:
        """The sums that `measure` adds to, shape (v,)."""
        return np.zeros(self._begins.size, np.float64)

    def measure(self, squares: _Numbers, step: Vector, base: Vector, begin: int) -> None:
        """Add the squares of a block of a step, shape (m,), the numbers from `begin` on.

        In float64, so that a rounded sum does not depend on a library's order of addition. Numbers that are never
        negative are measured relative to their `base`.
        """
        inside = self._inside(begin, step.size)
        for number in range(inside.start, inside.stop):
            part = self._part(number, begin, step.size)
            moved = step[part] / _scale(base[part]) if self._is_nonnegative[number] else step[part]
            squares[number] += np.square(moved, dtype=np.float64).sum()

    def shortened(self, table: Vector, number: int, row: Vector) -> Shortened:
        """Enter the row of update `number` into the table, in place, and compare it with the others."""
        table[number % LENGTHS] = row
        usual = usual_of(table)
        limits = usual[1:] * np.float32(self.clip)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(row[1:] > limits, limits / row[1:], np.float32(1.0)).astype(np.float32)
            furthest = np.max(np.where(usual[1:] > 0, row[1:] / usual[1:], np.float32(1.0)), initial=0.0)
        return Shortened(factors, limits, float(row[0]), float(usual[0]), float(furthest))

    def shorten(self, weights: Vector, base: Vector, begin: int, shortened: Shortened) -> None:
        """Shorten a block of an upload, shape (m,), in place; `base`: the block that its client started from."""
        inside = self._inside(begin, weights.size)
        touched = (shortened.factors[inside] < 1.0) | self._is_nonnegative[inside]
        for number in np.flatnonzero(touched) + inside.start:
            part = self._part(number, begin, weights.size)
            block, from_, factor = weights[part], base[part], shortened.factors[number]
            if self._is_nonnegative[number]:
                most = _scale(from_) * shortened.limits[number]
                np.clip(block, from_ - most, from_ + most, out=block)
                np.maximum(block, 0.0, out=block)
            else:
                block -= from_
                block *= factor
                block += from_

    def _part(self, number: int, begin: int, size: int) -> slice:
        """The place of a variable in a block."""
        return slice(max(self._begins[number] - begin, 0), min(self._ends[number] - begin, size))

    def _inside(self, begin: int, size: int) -> slice:
        """The variables that have numbers in a block."""
        first = int(np.searchsorted(self._ends, begin, "right"))
        behind = int(np.searchsorted(self._begins, begin + size, "left"))
        return slice(first, behind)


def _scale(base: Vector) -> Vector:
    """The sizes that numbers of a variable, never negative, are measured by: their own, and a tenth of their mean."""
    sizes: Vector = np.maximum(base, np.float32(0.0))
    sizes += np.float32(_FLOOR * float(sizes.sum(dtype=np.float64)) / sizes.size + _TINY)
    return sizes
