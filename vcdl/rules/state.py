"""A rule's own numbers next to the shared weights W, and their positions in a store's vector.

W │ vector 1 │ … │ vector k │ table    n · (1 + k) + 50 · c float32

At the start of a job everything behind W is zero, except for some rows of the table. A store keeps all of it as one
vector, so that W and the state change in one transaction or not at all.
"""

from dataclasses import dataclass

import numpy as np

from vcdl.wire.layout import Vector

LENGTHS = 50
"""Number of recent updates whose lengths are in the table; their median is the usual length (vcdl.trust.bounds)."""
_ROWS_AT_BEGIN = 10
"""Rows of the table that hold `first_row` at the start, so that the first updates have earlier ones to compare with."""


@dataclass(frozen=True)
class RuleState:
    """The size and layout of the numbers that follow W in a store's vector: a rule's vectors, and the table of lengths.

    Its methods return views of such a vector, so that changing a view changes the vector. It is false if nothing
    follows W.
    """

    vectors: int = 0
    """k, the number of vectors of shape (n,)."""
    first_row: tuple[float, ...] = ()
    """The row of c lengths with which the table begins (vcdl.trust.bounds). If empty, there is no table."""

    def size(self, weights: int) -> int:
        """Return how many numbers the store has for a model of `weights` weights."""
        return weights * (1 + self.vectors) + self.tail

    @property
    def tail(self) -> int:
        """How many numbers the table has; 0 without one."""
        return LENGTHS * len(self.first_row)

    def initial(self, weights: Vector) -> Vector:
        """Return the initial vector of a store from W of shape (n,), which is returned itself if nothing follows W."""
        if not self:
            return weights
        whole = np.zeros(self.size(weights.size), np.float32)
        whole[: weights.size] = weights
        # Use the last rows: updates write rows 1, 2, … in turn, and so overwrite these only from the fortieth on.
        self.table_of(self.tail_of(whole))[-_ROWS_AT_BEGIN:] = self.first_row
        return whole

    def weights(self, whole: Vector) -> Vector:
        """Return W in a store's vector, as a view of shape (n,)."""
        return whole[: (whole.size - self.tail) // (1 + self.vectors)]

    def beside(self, whole: Vector) -> Vector:
        """Return everything after W in a store's vector, as a view."""
        return whole[self.weights(whole).size :]

    def rows(self, whole: Vector) -> Vector:
        """Return W and the rule's own vectors in a store's vector, as a view.

        Returns:
            Rows of shape (1 + k, n), or W of shape (n,) if k = 0.
        """
        if not self.vectors:
            return self.weights(whole)
        return whole[: whole.size - self.tail].reshape(1 + self.vectors, -1)

    def tail_of(self, whole: Vector) -> Vector:
        """Return the table at the end of a store's vector, as a view."""
        return whole[whole.size - self.tail :]

    def table_of(self, tail: Vector) -> Vector:
        """Return the result of `tail_of` as a view of shape (50, c), in which update i has row i modulo 50."""
        return tail.reshape(LENGTHS, -1) if self.first_row else np.zeros((0, 0), np.float32)

    def __bool__(self) -> bool:
        return self != STATELESS


STATELESS = RuleState()
