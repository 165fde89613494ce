"""Bounds on the uploads of strangers: no variable may move further than honest training usually moves it.

Everything that is shared is bounded, variable by variable: trained weights, the statistics of batch normalisation, the
moments of optimizers. A limit on the whole step alone (Sun et al. 2019, *Can You Really Backdoor Federated Learning?*,
arXiv 1911.07963) leaves room for a step of the usual length in one small variable, for instance an output's bias, and
for any value in statistics and moments. docs/decisions/025 has the measurements behind the constants.

For a variable of n numbers, B what the client started from, C what it uploaded:

    1. step         a = C − B. If no number may be negative (variances, second moments), each number is divided by
                    its own scale s = max(B, 0) + scale_floor: training divides by their roots, so that the small ones
                    matter most.
       scale_floor  a tenth of the mean of max(B, 0) in the block, so that numbers near zero can move at all.
    2. step_norm    ‖a‖. Of a trained variable, divided by the learning rate of its workunit: late in a job honest
                    steps are short, and a long one would undo what was learned. Of one that is never negative, the root
                    of the mean square: a part of s.
    3. limit        `clip` times the median step_norm of the last 50 uploads.
    4. bounded      C' = B + κ·(C − B), κ = min(1, limit / step_norm). Of one that is never negative, number by number:
                    C limited to B ± limit·s, and to 0.

The step_norms of the last uploads are a table that follows W in the store (vcdl.rules.state). It has a row for each
update: first the step of all trained weights together, then a column for each variable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vcdl.rules.base import Rule
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.run.run import Run
from vcdl.wire.layout import Layout, Variable, Vector

_FLOOR = 0.1
"""Least scale of a number that may not be negative, as a fraction of its variable's mean, so that zeros can move."""
_TINY = 1e-12
_PIECE = 1 << 15
"""Numbers processed at a time, so that they and their intermediate results stay in the processor's cache."""

_Floors = dict[int, np.float32]
"""Variable's number → its scale_floor in a block."""
ScaleFloors = Mapping[int, _Floors]
"""Start of a block → its scale_floors, for blocks whose base has no negative number where none may be."""
_NONE_KNOWN: ScaleFloors = {}


_Run = list[tuple[int, int, int]]
"""Neighbouring variables in a block with the same kind of bound: number, start and end of each."""


class _Piece(NamedTuple):
    """A piece of a block with its cells: the parts of variables in it, which all have the same kind of bound."""

    is_nonnegative: bool
    at: slice
    """The piece's place in its block."""
    cells: tuple[tuple[int, slice], ...]
    """The number of each variable and its place in the piece."""


class _Block(NamedTuple):
    """The variables in a block of the shared weights."""

    nonnegative: tuple[_Run, ...]
    pieces: tuple[_Piece, ...]


@dataclass(frozen=True)
class StepLimits:
    """The limits of one upload's changes to the shared weights."""

    limit: Vector
    """The longest step of each variable, shape (v,)."""
    factors: Vector
    """κ of each variable, shape (v,), in [0, 1]: the factor on the client's step."""
    length: float
    """The step_norm of the trained weights together."""
    usual: float
    """The median step_norm of the last uploads' trained weights, or 0 before there are any."""
    furthest: float
    """The largest ratio of a trained variable's step to its usual length."""
    scale_floors: ScaleFloors = field(default_factory=lambda: _NONE_KNOWN)
    """The scale floors computed while measuring, so that they need not be computed again."""


@dataclass
class StepSums:
    """The sums of an upload's step over its blocks."""

    squares: npt.NDArray[np.float64]
    """‖a‖² of each variable, shape (v,)."""
    directions: npt.NDArray[np.float64]
    """Rows of shape (v,) over the trained variables: ⟨a, b⟩, ⟨b, b⟩, ⟨a, r⟩, ⟨r, r⟩, where b = W − B is the movement of
    the shared weights and r the reference update."""
    scale_floors: dict[int, _Floors] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """Measures the steps of uploads, and limits them. Immutable except for a cache of how blocks are divided."""

    layout: Layout
    clip: float
    first_row: tuple[float, ...]
    """The table's first row: the server's own step on held-out data, measured before any client is known."""

    @classmethod
    def of(cls, run: Run) -> Self | None:
        """Return the bounds on clients' uploads, or None if the run was prepared without the server's own step.

        Such runs train on the submitter's own machines, or were prepared before steps were bounded.
        """
        own_step = run.prepared.own_step
        return cls(run.layout, run.job.trust.clip, own_step) if own_step else None

    @cached_property
    def _variables(self) -> tuple[Variable, ...]:
        """The v variables that are bounded: all except empty ones. Their order gives their numbers."""
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

    def state_of(self, rule: Rule) -> RuleState:
        """Return the layout of the store's vector for a rule whose steps are bounded.

        It is the rule's own layout, extended by the table of recent step norms, which begins with `first_row`.
        """
        return replace(rule.state, first_row=self.first_row)

    # -- measuring (1, 2)

    def sums(self) -> StepSums:
        """Return sums of 0 for a new upload, to which `measure` adds its blocks."""
        return StepSums(np.zeros(len(self._variables)), np.zeros((4, len(self._variables))))

    def measure(
        self,
        sums: StepSums,
        weights: Vector,
        base: Vector,
        begin: int,
        w: Vector | None = None,
        reference: Vector | None = None,
    ) -> None:
        """Add a block of an upload's step to its sums.

        Norms are summed in float64, so that the rounded sum does not depend on a library's order of addition. Only
        refusals depend on directions, and those are never replayed.

        Args:
            sums: The sums of this upload.
            weights: The block of the upload, shape (m,).
            base: The same block of what its client started from.
            begin: The number of the block's first weight.
            w: The same block of the shared weights, or None if directions do not matter.
            reference: The same block of the reference update, or None if there is none.
        """
        own, floors = self._block_scale(base, begin)
        if own is base:
            sums.scale_floors[begin] = floors
        for is_nonnegative, at, cells in self._block(begin, weights.size).pieces:
            step = weights[at] - base[at]
            if is_nonnegative:
                step /= _scales(own[at], cells, floors)
            elif w is not None:
                self._add_dot_products(sums.directions[:2], step, w[at] - base[at], cells)
                if reference is not None:
                    self._add_dot_products(sums.directions[2:], step, reference[at], cells)
            exact = step.astype(np.float64)
            for number, cell in cells:
                sums.squares[number] += exact[cell] @ exact[cell]

    def _add_dot_products(
        self, sums: npt.NDArray[np.float64], step: Vector, way: Vector, cells: tuple[tuple[int, slice], ...]
    ) -> None:
        """Add a piece to the dot products of a step with a direction, and to the direction's squares."""
        for number, cell in cells:
            if self._is_trained[number]:
                sums[0, number] += step[cell] @ way[cell]
                sums[1, number] += way[cell] @ way[cell]

    def step_norms(self, sums: StepSums, rate: float) -> Vector:
        """Return the table row (step_norms) of a step whose blocks were all added to `sums`.

        Args:
            sums: The sums of the upload.
            rate: The learning rate at which it was trained, as a factor of the job's peak rate. Norms of trained
                variables are divided by it.

        Returns:
            Shape (1 + v,): the norm of all trained weights together, then that of each variable.
        """
        squares = np.where(self._is_trained, sums.squares / rate**2, sums.squares)
        squares = np.where(self._is_nonnegative, squares / self._counts, squares)
        norms = np.sqrt(np.concatenate([[squares[self._is_trained].sum()], squares]))
        row: Vector = norms.astype(np.float32)
        return row

    def row_of_step(self, weights: Vector, base: Vector, rate: float) -> Vector:
        """Return the table row (step_norms) for a step in memory, from `base` to `weights`, both of shape (n,).

        `rate` is the learning rate of its training, as a factor of the job's peak rate.
        """
        sums = self.sums()
        self.measure(sums, weights, base, 0)
        return self.step_norms(sums, rate)

    def cosines(self, sums: StepSums, factors: Vector) -> tuple[float | None, float | None]:
        """Return the clipped step's cosines with the movement of the shared weights and with the reference update.

        A cosine is None if the step or the direction has length 0, for example because no update was applied since B.

        Args:
            sums: The sums of the upload.
            factors: κ of each variable, shape (v,).
        """
        # Use the step as it will be applied: clipping one variable changes the direction of the whole.
        kept = np.where(self._is_trained, factors, 0.0)
        length = float(sums.squares @ kept**2)
        with_way, way, with_reference, reference = sums.directions @ np.stack([kept, np.ones_like(kept)], axis=1)
        return _cosine(with_way[0], length * way[1]), _cosine(with_reference[0], length * reference[1])

    # -- limiting (3, 4)

    def limits(
        self, table: Vector, number: int, row: Vector, floors: ScaleFloors = _NONE_KNOWN, *, is_measure: bool = True
    ) -> StepLimits:
        """Return the limits of an update, and write its row into `table`, in place.

        Args:
            table: The step_norms of the last updates; the row at `number` modulo its length is overwritten.
            number: The number of the update in the job.
            row: Its step_norms.
            floors: Its scale floors as computed by `measure`; `hold` computes those that are missing.
            is_measure: Whether later uploads may be compared with this row. If not, the median row is written instead.
        """
        if is_measure:
            table[number % LENGTHS] = row
        usual = usual_of(table)
        if not is_measure:
            # A row must be written in any case: its place still has the row of fifty versions ago, which would
            # otherwise count twice as long.
            table[number % LENGTHS] = usual
        limit = usual[1:] * np.float32(self.clip)
        with np.errstate(divide="ignore", invalid="ignore"):
            # A variable that never moved has a limit of 0, and stays where it is. NaN compares as false and keeps its
            # factor: it is refused as not finite.
            factors = np.where(row[1:] > limit, limit / row[1:], np.float32(1.0)).astype(np.float32)
            moved = np.where((usual[1:] > 0) & self._is_trained, row[1:] / usual[1:], np.float32(0.0))
        return StepLimits(limit, factors, float(row[0]), float(usual[0]), float(np.max(moved, initial=0.0)), floors)

    def hold(self, weights: Vector, base: Vector, begin: int, limits: StepLimits) -> None:
        """Clip a block of an upload to its limits, in place.

        Args:
            weights: The block, shape (m,); overwritten.
            base: The same block of what its client started from.
            begin: The number of the block's first weight.
            limits: The limits of this upload.
        """
        known = limits.scale_floors.get(begin)
        own, floors = self._block_scale(base, begin) if known is None else (base, known)
        for is_nonnegative, at, cells in self._block(begin, weights.size).pieces:
            piece, started_from = weights[at], base[at]
            if is_nonnegative:
                longest = _scales(own[at], cells, floors)
                for number, cell in cells:
                    longest[cell] *= limits.limit[number]
                _limit(piece, started_from, longest)
                continue
            for number, cell in cells:
                # Most variables are within their limit, and keep their bits: B + 1·(C − B) would round.
                if limits.factors[number] < 1.0:
                    part = piece[cell]
                    part -= started_from[cell]
                    part *= limits.factors[number]
                    part += started_from[cell]

    # -- cells

    @cached_property
    def _known_blocks(self) -> dict[tuple[int, int], _Block]:
        return {}

    def _block(self, begin: int, size: int) -> _Block:
        """Return which variables are in a block, in pieces of one kind of bound; cached, as all uploads are alike."""
        known = self._known_blocks.get((begin, size))
        if known is None:
            inside = [
                (number, max(variable.offset - begin, 0), min(variable.offset + variable.size - begin, size))
                for number, variable in enumerate(self._variables)
                if variable.offset < begin + size and variable.offset + variable.size > begin
            ]
            alike = groupby(inside, key=lambda place: self._variables[place[0]].is_nonnegative)
            runs = [(is_nonnegative, list(run)) for is_nonnegative, run in alike]
            pieces = tuple(
                _Piece(is_nonnegative, slice(start, stop), tuple(_within(run, start, stop)))
                for is_nonnegative, run in runs
                for start in range(run[0][1], run[-1][2], _PIECE)
                for stop in [min(start + _PIECE, run[-1][2])]
            )
            known = _Block(tuple(run for is_nonnegative, run in runs if is_nonnegative), pieces)
            self._known_blocks[begin, size] = known
        return known

    def _block_scale(self, base: Vector, begin: int) -> tuple[Vector, _Floors]:
        """Return max(B, 0) for the nonnegative variables of a block B, and their scale_floors.

        The vector is `base` itself, not a copy, if none of these numbers is negative, as is nearly always the case.
        """
        runs = self._block(begin, base.size).nonnegative
        if any(not base[run[0][1] : run[-1][2]].min() >= 0.0 for run in runs):
            base = np.maximum(base, np.float32(0.0))
        floors = {}
        for run in runs:
            start = run[0][1]
            sums = np.add.reduceat(base[start : run[-1][2]], [first - start for _, first, _ in run], dtype=np.float64)
            for (number, first, behind), total in zip(run, sums, strict=True):
                # _TINY prevents a division by zero for a variable of zeros.
                floors[number] = np.float32(_FLOOR * float(total) / (behind - first) + _TINY)
        return base, floors


def _within(run: _Run, start: int, stop: int) -> list[tuple[int, slice]]:
    """Return the number of each variable between two positions of a block, and its place relative to `start`."""
    return [
        (number, slice(max(first, start) - start, min(behind, stop) - start))
        for number, first, behind in run
        if first < stop and behind > start
    ]


def _cosine(product: float, squares: float) -> float | None:
    """Return ⟨a, b⟩ / (‖a‖·‖b‖) from ⟨a, b⟩ and ‖a‖²·‖b‖², or None if a vector is 0."""
    return float(product / np.sqrt(squares)) if squares > 0 else None


def _scales(own: Vector, cells: tuple[tuple[int, slice], ...], floors: _Floors) -> Vector:
    """Return the scale s of each number of a piece, as a new array."""
    scales = np.empty_like(own)
    for number, cell in cells:
        np.add(own[cell], floors[number], out=scales[cell])
    return scales


def _limit(piece: Vector, base: Vector, longest: Vector) -> None:
    """Limit the steps of numbers that are never negative to `longest`, in place; `longest` is overwritten."""
    np.maximum(piece, base - longest, out=piece)
    longest += base
    np.minimum(piece, longest, out=piece)
    if not piece.min() >= 0.0:
        np.maximum(piece, np.float32(0.0), out=piece)


def usual_of(table: Vector) -> Vector:
    """Return the lower median of the positive lengths in each column of a table, shape (r, c) → (c,).

    A column without positive lengths gives 0.
    """
    rows = table.shape[0]
    if table.size and table.all():  # a full table: every column has the same place for its median
        full: Vector = np.partition(table, (rows - 1) // 2, axis=0)[(rows - 1) // 2]
        return full
    known = np.sort(table, axis=0)
    count = np.count_nonzero(known, axis=0)
    middle = rows - count + np.maximum(count - 1, 0) // 2  # the zeros of an empty column are all equal
    usual: Vector = np.take_along_axis(known, np.minimum(middle, rows - 1)[None], axis=0)[0]
    return usual
