"""Bounds on the uploads of strangers: no variable may move further than honest training usually moves it.

Everything that is shared is bounded, variable by variable: trained weights, the statistics of batch normalisation, the
moments of optimizers. A limit on the whole step alone (Sun et al. 2019, *Can You Really Backdoor Federated Learning?*,
arXiv 1911.07963) leaves room for a step of the usual length in one small variable, an output's bias say, and for any
value in what is no weight. docs/decisions/025 has the measurements behind the constants.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
_BLOCK = 1 << 15


Floors = Mapping[tuple[int, int], np.float32]
"""A part of a variable's mean that is added to its numbers, never negative, for their sizes: by the variable's number
and the block's begin. Only of those whose base is not negative either."""


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
    floors: Floors = field(default_factory=dict)


@dataclass
class Sums:
    """The measures of an upload, block by block."""

    squares: _Numbers
    """The squares of each variable's step, shape (v,)."""
    floors: dict[tuple[int, int], np.float32] = field(default_factory=dict)


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
    def _counts(self) -> npt.NDArray[np.int64]:
        return np.array([variable.size for variable in self._variables], np.int64)

    @cached_property
    def _is_trained(self) -> npt.NDArray[np.bool_]:
        return np.array([variable.is_trained for variable in self._variables], np.bool_)

    @cached_property
    def _is_nonnegative(self) -> npt.NDArray[np.bool_]:
        return np.array([variable.is_nonnegative for variable in self._variables], np.bool_)

    @cached_property
    def _known_places(self) -> dict[tuple[int, int], tuple[tuple[int, slice, bool], ...]]:
        return {}

    def state_of(self, rule: Rule) -> RuleState:
        """The state of a bounded rule: its own, and the table."""
        return replace(rule.state, first_row=self.first_row)

    def lengths_of(self, weights: Vector, base: Vector, rate: float) -> Vector:
        """The row of a whole step in memory, from `base` to `weights`, both of shape (n,)."""
        sums = self.sums()
        self.measure(sums, weights, base, 0)
        return self.lengths(sums, rate)

    def lengths(self, sums: Sums, rate: float) -> Vector:
        """A row of the table from the sums of a whole step."""
        squares = np.where(self._is_trained, sums.squares / rate**2, sums.squares)
        squares = np.where(self._is_nonnegative, squares / self._counts, squares)
        lengths = np.sqrt(np.concatenate([[squares[self._is_trained].sum()], squares]))
        row: Vector = lengths.astype(np.float32)
        return row

    def sums(self) -> Sums:
        """What `measure` adds to."""
        return Sums(np.zeros(len(self._variables), np.float64))

    def measure(self, sums: Sums, weights: Vector, base: Vector, begin: int) -> None:
        """Measure a block of the step from `base` to `weights`, both of shape (m,), the numbers from `begin` on.

        In float64, so that a rounded sum does not depend on a library's order of addition. Numbers that are never
        negative are measured relative to their `base`.
        """
        for number, part, is_nonnegative in self._places(begin, weights.size):
            to, from_ = weights[part], base[part]
            if is_nonnegative:
                own = _own_sizes(from_)
                floor = _floor(own)
                if own is from_:
                    sums.floors[number, begin] = floor
            square = 0.0
            for some in _in_cache(to.size):
                moved = to[some] - from_[some]
                if is_nonnegative:
                    moved /= own[some] + floor
                exact = moved.astype(np.float64)
                square += float(exact @ exact)
            sums.squares[number] += square

    def shortened(self, table: Vector, number: int, row: Vector, floors: Floors | None = None) -> Shortened:
        """Enter the row of update `number` into the table, in place, and compare it with the others.

        `floors`: those of its measuring, where they are known.
        """
        table[number % LENGTHS] = row
        usual = usual_of(table)
        limits = usual[1:] * np.float32(self.clip)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(row[1:] > limits, limits / row[1:], np.float32(1.0)).astype(np.float32)
            furthest = np.max(np.where(usual[1:] > 0, row[1:] / usual[1:], np.float32(1.0)), initial=0.0)
        return Shortened(factors, limits, float(row[0]), float(usual[0]), float(furthest), floors or {})

    def shorten(self, weights: Vector, base: Vector, begin: int, shortened: Shortened) -> None:
        """Shorten a block of an upload, shape (m,), in place; `base`: the block that its client started from."""
        for number, part, is_nonnegative in self._places(begin, weights.size):
            if is_nonnegative:
                own = from_ = base[part]
                floor = shortened.floors.get((number, begin))
                if floor is None:
                    own = _own_sizes(from_)
                    floor = _floor(own)
                for some in _in_cache(own.size):
                    _limit(weights[part][some], from_[some], own[some] + floor, shortened.limits[number])
            elif shortened.factors[number] < 1.0:
                block, from_ = weights[part], base[part]
                block -= from_
                block *= shortened.factors[number]
                block += from_

    def _places(self, begin: int, size: int) -> tuple[tuple[int, slice, bool], ...]:
        """The variables that have numbers in a block: number, place in it, and whether they are never negative.

        Blocks are the same for each upload, so they are looked up once.
        """
        known = self._known_places.get((begin, size))
        if known is None:
            known = tuple(
                (
                    number,
                    slice(max(variable.offset - begin, 0), min(variable.offset + variable.size - begin, size)),
                    variable.is_nonnegative,
                )
                for number, variable in enumerate(self._variables)
                if variable.offset < begin + size and variable.offset + variable.size > begin
            )
            self._known_places[begin, size] = known
        return known


def _in_cache(size: int) -> Iterator[slice]:
    """Slices of a variable for which what is computed stays in the processor's cache."""
    for begin in range(0, size, _BLOCK):
        yield slice(begin, min(begin + _BLOCK, size))


def _limit(block: Vector, base: Vector, sizes: Vector, limit: np.float32) -> None:
    """Limit the steps of numbers that are never negative to `limit` times their sizes, in place; `sizes` is used up."""
    sizes *= limit
    np.maximum(block, base - sizes, out=block)
    sizes += base
    np.minimum(block, sizes, out=block)
    if not block.min() >= 0.0:
        np.maximum(block, np.float32(0.0), out=block)


def _own_sizes(base: Vector) -> Vector:
    """Sizes that numbers of a variable, never negative, are measured by, but for its floor."""
    return base if base.min() >= 0.0 else np.maximum(base, np.float32(0.0))  # what is shared is hardly ever negative


def _floor(own: Vector) -> np.float32:
    """A tenth of their mean."""
    return np.float32(_FLOOR * float(own.sum(dtype=np.float64)) / own.size + _TINY)
