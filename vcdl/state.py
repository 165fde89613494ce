"""What a rule keeps beside the shared weights W, and where it lies in a store's vector.

    W │ vector 1 │ … │ vector k │ lengths        n · (1 + k) + s float32, all zero behind W when a job begins

They are one vector to a store, so that W and what belongs to it change in one transaction, or not at all.
"""

from dataclasses import dataclass

import numpy as np

from vcdl.weights import Vector


@dataclass(frozen=True)
class State:
    """How much a rule keeps."""

    vectors: int = 0
    """k, each of shape (n,)."""
    lengths: int = 0
    """s: of the last s updates, each at its number modulo s; 0 where there is none yet."""

    def size(self, weights: int) -> int:
        """Numbers in the store for a model of `weights` weights."""
        return weights * (1 + self.vectors) + self.lengths

    def begun(self, weights: Vector) -> Vector:
        """The store's vector at a job's begin, from W of shape (n,)."""
        if not self:
            return weights
        whole = np.zeros(self.size(weights.size), np.float32)
        whole[: weights.size] = weights
        return whole

    def weights(self, whole: Vector) -> Vector:
        """W of a store's vector: a view of shape (n,)."""
        return whole[: (whole.size - self.lengths) // (1 + self.vectors)]

    def beside(self, whole: Vector) -> Vector:
        """All of a store's vector but W: a view."""
        return whole[self.weights(whole).size :]

    def rows(self, whole: Vector) -> Vector:
        """What rules fold into, a view: W and the vectors as rows of shape (1 + k, n); without vectors, W of shape (n,)."""
        if not self.vectors:
            return self.weights(whole)
        return whole[: whole.size - self.lengths].reshape(1 + self.vectors, -1)

    def lengths_of(self, whole: Vector) -> Vector:
        """A view of shape (s,)."""
        return whole[whole.size - self.lengths :]

    def __bool__(self) -> bool:
        return self != STATELESS


STATELESS = State()
