"""Fold uploads into a store's vector, block by block and in place.

A block is read once. Every waiting upload is folded into it, in order, while it is in the processor's cache. Then it is
written once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from vcdl.errors.refusal import Refused
from vcdl.rules.state import RuleState
from vcdl.wire.layout import Vector

FOLD_BLOCK = 1 << 18
"""Numbers that are folded at a time, 1 MiB, so that a block, an upload and the rule's arrays fit into the processor's
last cache."""
KEPT_NUMBERS = 1 << 20
"""Numbers of the longest vector (4 MiB) that a server keeps in memory between two passes; longer ones are read twice,
because memory is limited."""


class Change(ABC):
    """One upload while it is applied to the weights, block by block.

    If `needs_first_pass`, `first_pass` is called for each block, then `first_pass_done` once. Then `apply` is called
    for each block, and `close` at the end. If `refused` is not None after a pass, no upload of the batch is committed.
    """

    @property
    def needs_first_pass(self) -> bool:
        """Whether all of the upload must be measured before any of it is applied."""
        return False

    def first_pass(self, w: Vector, begin: int) -> None:
        """Measure a block of the upload against the same block of W, which is not changed. Blocks come in order."""
        return

    def first_pass_done(self, tail: Vector) -> None:
        """Finish the first pass, and write the upload's step lengths into `tail`, in place.

        Args:
            tail: The numbers after W and its rows in the store (vcdl.rules.state).
        """
        return

    @abstractmethod
    def apply(self, w: Vector, begin: int) -> float:
        """Apply the upload to a block of W in place, and return the weight that the rule gave to it.

        Args:
            w: The block, shape (m,). For a rule with k vectors in addition to W its shape is (1 + k, m), and row 0 is
                W.
            begin: The number of the block's first weight. Blocks come in order.
        """

    @property
    def refused(self) -> Refused | None:
        """Why the upload is refused, known after the last block, or None if it is accepted."""
        return None

    def close(self) -> None:
        """Close the upload's file."""
        return


class RefusedChange(Change):
    """An upload that is refused for a known reason without being read."""

    needs_first_pass = True
    """True, so that it is refused before other uploads of the batch are applied, which would have to be repeated."""

    def __init__(self, why: Refused) -> None:
        self._why = why

    def apply(self, w: Vector, begin: int) -> float:
        return 0.0

    @property
    def refused(self) -> Refused:
        return self._why


class WorkingVector(Protocol):
    """A store's whole vector within a transaction, while uploads are applied to it block by block."""

    @property
    def width(self) -> int:
        """n, the number of weights in W."""
        ...

    @property
    def tail(self) -> Vector:
        """The step lengths after W and the rule's rows (vcdl.rules.state), to be changed in place."""
        ...

    def block(self, begin: int, end: int) -> Vector:
        """Return numbers `begin` to `end` of W, shape (m,), to be changed in place; valid until the next call.

        With k further vectors the shape is (1 + k, m), and row 0 is W.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def weights(self, begin: int, end: int) -> Vector:
        """Return weights `begin` to `end` of W, shape (m,), for reading; valid until the next call.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def keep(self, begin: int, block: Vector) -> None:
        """Store the new values of the block that starts at `begin`.

        Raises:
            StoreError: They cannot be written.
        """
        ...


class InMemory:
    """A working vector that is in memory as a whole, so that changing a block changes it at once."""

    def __init__(self, whole: Vector, state: RuleState) -> None:
        self.width = state.weights(whole).size
        self.tail = state.tail_of(whole)
        self._rows = state.rows(whole)

    def block(self, begin: int, end: int) -> Vector:
        return self._rows[..., begin:end]

    def weights(self, begin: int, end: int) -> Vector:
        return self._rows[0, begin:end] if self._rows.ndim > 1 else self._rows[begin:end]

    def keep(self, begin: int, block: Vector) -> None:
        return


def fold_changes(changes: Sequence[Change], vector: WorkingVector, state: RuleState) -> list[float]:
    """Apply changes to a vector in order, in place, and return the weight that the rule gave to each.

    If a first pass refuses a change, nothing is applied and all weights are 0. Ask each change whether it is `refused`.

    Args:
        changes: The uploads.
        vector: The store's vector.
        state: The layout of the rule's numbers in it.
    """
    weights = [0.0] * len(changes)
    # Do all first passes before any fold: a refusal then costs no pass over W, and the others are folded without the
    # refused one.
    measured = [change for change in changes if change.needs_first_pass]
    for begin, end in _blocks(vector, state) if measured else ():
        block = vector.weights(begin, end)
        for change in measured:
            change.first_pass(block, begin)
    for change in measured:
        change.first_pass_done(vector.tail)
    if any(change.refused is not None for change in measured):
        return weights
    for begin, end in _blocks(vector, state):
        block = vector.block(begin, end)
        for number, change in enumerate(changes):
            weights[number] = change.apply(block, begin)
        vector.keep(begin, block)
    return weights


def _blocks(vector: WorkingVector, state: RuleState) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of consecutive blocks that cover W.

    A block is so short that W and the rule's vectors fit FOLD_BLOCK numbers.

    If W is empty, yield one empty block, so that each change is still applied once.
    """
    step = max(1, FOLD_BLOCK // (1 + state.vectors))
    for begin in range(0, max(1, vector.width), step):
        yield begin, min(begin + step, vector.width)
