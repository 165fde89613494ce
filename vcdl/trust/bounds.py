"""Bounds on the uploads of strangers: no variable may move further than honest training usually moves it.

Everything that is shared is bounded, variable by variable: trained weights, the statistics of batch normalisation, the
moments of optimizers. A limit on the whole step alone (Sun et al. 2019, *Can You Really Backdoor Federated Learning?*,
arXiv 1911.07963) leaves room for a step of the usual length in one small variable, an output's bias say, and for any
value in what is no weight. docs/decisions/025 has the measurements behind the constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Self

import numpy as np
import numpy.typing as npt

from vcdl.rules.base import Rule
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.run.run import Run
from vcdl.wire.weights import Layout, Variable, Vector

_Numbers = npt.NDArray[np.float64]

_FLOOR = 0.1
"""The part of a variable's mean by which its smallest numbers are measured, if none may be negative."""
_TINY = 1e-12
_PIECE = 1 << 15


Floors = Mapping[tuple[int, int], np.float32]
"""A part of a variable's mean that is added to its numbers, never negative, for their sizes: by the variable's number
and the block's begin. Only of those whose base is not negative either."""


_NO_FLOORS: Floors = {}
_Parts = tuple[tuple[int, slice], ...]
"""Variables, each with its number and place."""


@dataclass(frozen=True)
class Shortened:
    """The bounds' verdict on one upload."""

    factors: Vector
    """κ of each variable, shape (v,), in [0, 1]: the client's step counts κ times."""
    limits: Vector
    """The longest step of each variable, shape (v,)."""
    length: float
    """‖C − B‖ over the trained weights, at the job's peak learning rate."""
    usual: float
    """The median of the last ones; 0 before there is any."""
    furthest: float
    """The step of the trained variable that moved furthest, in its usual lengths."""
    floors: Floors = field(default_factory=lambda: _NO_FLOORS)


@dataclass
class Sums:
    """The measures of an upload, block by block."""

    squares: _Numbers
    """The squares of each variable's step a = C − B, shape (v,)."""
    directions: _Numbers
    """Rows of shape (v,) over the trained variables: ⟨a, b⟩, ⟨b, b⟩, ⟨a, r⟩, ⟨r, r⟩ for the way b = W − B of the shared
    weights and the reference update r.
    """
    floors: dict[tuple[int, int], np.float32] = field(default_factory=dict)


@dataclass(frozen=True)
class _Run:
    """Variables of a block that lie one behind the other and are bounded alike: one call computes for all of them.

    Places below are places in the run.
    """

    is_nonnegative: bool
    at: slice
    """The run's place in its block."""
    variables: _Parts
    pieces: tuple[tuple[slice, _Parts], ...]
    """Stretches that stay in the processor's cache with what is computed from them: the place of each, and of the
    variables in it, counted from the piece's begin."""


@dataclass(frozen=True)
class Bounds:
    """Shortens the step of each variable to `clip` times its usual length, `C' = B + κ·(C − B)`.

    Variances and second moments, which are never negative, are measured and limited number by number, relative to what
    they are. Training divides by their roots, so that the small ones matter most.

    The usual length is the median of the last 50 uploads'. A trained variable's length is divided by the rate of its
    workunit first. Late in a job honest steps are short, and a long one would undo what was learned. The
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
    def _known_runs(self) -> dict[tuple[int, int], tuple[_Run, ...]]:
        return {}

    @classmethod
    def of(cls, run: Run) -> Self | None:
        """The bounds on what clients upload; None where they are trusted."""
        own_step = run.prepared.own_step
        return cls(run.layout, run.job.trust.clip, own_step) if own_step else None

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
        """The sums that `measure` adds to."""
        return Sums(np.zeros(len(self._variables)), np.zeros((4, len(self._variables))))

    def measure(
        self,
        sums: Sums,
        weights: Vector,
        base: Vector,
        begin: int,
        w: Vector | None = None,
        reference: Vector | None = None,
    ) -> None:
        """Measure a block of the step from `base` to `weights`, the numbers from `begin` on, and compare it with the
        way of `w` since `base`, and with the `reference` update; all of shape (m,).

        Lengths in float64, so that a rounded sum does not depend on a library's order of addition; numbers that are
        never negative relative to their `base`. Only refusals depend on directions, which are not made again.
        """
        for run in self._runs(begin, weights.size):
            to, from_ = weights[run.at], base[run.at]
            own, floors = from_, _NO_FLOORS
            if run.is_nonnegative:
                own = _own_sizes(from_)
                floors = _floors(run, own, begin)
                if own is from_:
                    sums.floors.update(floors)
            for at, parts in run.pieces:
                moved = to[at] - from_[at]
                if run.is_nonnegative:
                    moved /= _sizes(own[at], parts, begin, floors)
                elif w is not None:
                    self._compare(sums, moved, w[run.at][at] - from_[at], 0, parts)
                    if reference is not None:
                        self._compare(sums, moved, reference[run.at][at], 2, parts)
                exact = moved.astype(np.float64)
                for number, part in parts:
                    some = exact[part]
                    sums.squares[number] += some @ some

    def _compare(self, sums: Sums, step: Vector, way: Vector, row: int, parts: _Parts) -> None:
        """Compare a piece of a step with a direction, in two rows of `sums.directions`."""
        for number, part in parts:
            if self._is_trained[number]:
                a, b = step[part], way[part]
                sums.directions[row, number] += a @ b
                sums.directions[row + 1, number] += b @ b

    def cosines(self, sums: Sums, factors: Vector) -> tuple[float | None, float | None]:
        """Cosines of the shortened step, `factors` of shape (v,), with the way of the shared weights and with the
        reference update; None without one.
        """
        kept = np.where(self._is_trained, factors, 0.0)
        length = float(sums.squares @ kept**2)
        with_way, way, with_reference, reference = sums.directions @ np.stack([kept, np.ones_like(kept)], axis=1)
        return _cosine(with_way[0], length * way[1]), _cosine(with_reference[0], length * reference[1])

    def shortened(
        self, table: Vector, number: int, row: Vector, floors: Floors | None = None, *, is_measure: bool = True
    ) -> Shortened:
        """Compare the row of update `number` with the table, and enter it there, in place. A row that is no measure for
        others gets what is usual.

        `floors`: those of its measuring, where they are known.
        """
        if is_measure:
            table[number % LENGTHS] = row
        usual = usual_of(table)
        if not is_measure:
            table[number % LENGTHS] = usual
        limits = usual[1:] * np.float32(self.clip)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(row[1:] > limits, limits / row[1:], np.float32(1.0)).astype(np.float32)
            moved = np.where((usual[1:] > 0) & self._is_trained, row[1:] / usual[1:], np.float32(0.0))
        furthest = float(np.max(moved, initial=0.0))
        return Shortened(factors, limits, float(row[0]), float(usual[0]), furthest, floors or _NO_FLOORS)

    def shorten(self, weights: Vector, base: Vector, begin: int, shortened: Shortened) -> None:
        """Shorten a block of an upload, shape (m,), in place; `base`: the block that its client started from."""
        for run in self._runs(begin, weights.size):
            to, from_ = weights[run.at], base[run.at]
            if run.is_nonnegative:
                own, floors = from_, shortened.floors
                if (run.variables[0][0], begin) not in floors:
                    own = _own_sizes(from_)
                    floors = _floors(run, own, begin)
                for at, parts in run.pieces:
                    longest = _sizes(own[at], parts, begin, floors)
                    for number, part in parts:
                        longest[part] *= shortened.limits[number]
                    _limit(to[at], from_[at], longest)
                continue
            for number, part in run.variables:
                if shortened.factors[number] < 1.0:
                    block = to[part]
                    block -= from_[part]
                    block *= shortened.factors[number]
                    block += from_[part]

    def _runs(self, begin: int, size: int) -> tuple[_Run, ...]:
        """The runs in a block. Blocks are the same for each upload, so they are looked up once."""
        known = self._known_runs.get((begin, size))
        if known is None:
            inside = [
                (number, max(variable.offset - begin, 0), min(variable.offset + variable.size - begin, size))
                for number, variable in enumerate(self._variables)
                if variable.offset < begin + size and variable.offset + variable.size > begin
            ]
            alike = groupby(inside, key=lambda place: self._variables[place[0]].is_nonnegative)
            known = tuple(_run(is_nonnegative, tuple(places)) for is_nonnegative, places in alike)
            self._known_runs[begin, size] = known
        return known


def _cosine(product: float, squares: float) -> float | None:
    return float(product / np.sqrt(squares)) if squares > 0 else None


def _run(is_nonnegative: bool, places: tuple[tuple[int, int, int], ...]) -> _Run:
    """A run of variables, each with its number, begin and end in the block."""
    begin, end = places[0][1], places[-1][2]
    pieces = []
    for start in range(begin, end, _PIECE):
        stop = min(start + _PIECE, end)
        parts = tuple(
            (number, slice(max(first, start) - start, min(behind, stop) - start))
            for number, first, behind in places
            if first < stop and behind > start
        )
        pieces.append((slice(start - begin, stop - begin), parts))
    variables = tuple((number, slice(first - begin, behind - begin)) for number, first, behind in places)
    return _Run(is_nonnegative, slice(begin, end), variables, tuple(pieces))


def _sizes(own: Vector, parts: _Parts, begin: int, floors: Floors) -> Vector:
    """Scales for the numbers of a piece, which are never negative: a new array."""
    sizes = np.empty_like(own)
    for number, part in parts:
        np.add(own[part], floors[number, begin], out=sizes[part])
    return sizes


def _limit(block: Vector, base: Vector, longest: Vector) -> None:
    """Limit the steps of numbers that are never negative to the `longest`, in place; these are used up."""
    np.maximum(block, base - longest, out=block)
    longest += base
    np.minimum(block, longest, out=block)
    if not block.min() >= 0.0:
        np.maximum(block, np.float32(0.0), out=block)


def _own_sizes(base: Vector) -> Vector:
    """Sizes that numbers, which are never negative, are measured by, but for their variable's floor."""
    return base if base.min() >= 0.0 else np.maximum(base, np.float32(0.0))  # what is shared is hardly ever negative


def _floors(run: _Run, own: Vector, begin: int) -> Floors:
    """A tenth of the mean of each variable in a run."""
    sums = np.add.reduceat(own, [part.start for _, part in run.variables], dtype=np.float64)
    return {
        (number, begin): np.float32(_FLOOR * float(total) / (part.stop - part.start) + _TINY)
        for (number, part), total in zip(run.variables, sums, strict=True)
    }


def usual_of(table: Vector) -> Vector:
    """The usual length in each column of a table of lengths, shape (r, c) → (c,): the lower median of those > 0.

    0 where there is none.
    """
    rows = table.shape[0]
    if table.size and table.all():  # as soon as the table is full: no column has a place of its own for the middle
        full: Vector = np.partition(table, (rows - 1) // 2, axis=0)[(rows - 1) // 2]
        return full
    known = np.sort(table, axis=0)
    count = np.count_nonzero(known, axis=0)
    middle = rows - count + np.maximum(count - 1, 0) // 2  # the zeros of an empty column are all alike
    usual: Vector = np.take_along_axis(known, np.minimum(middle, rows - 1)[None], axis=0)[0]
    return usual
