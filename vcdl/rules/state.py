"""A rule's own numbers beside the shared weights W, and their places in a store's vector.

    W │ vector 1 │ … │ vector k │ lengths        n · (1 + k) + s float32, all zero behind W when a job begins

A store keeps them as one vector, so that W and the state change in one transaction or not at all.
"""

from dataclasses import dataclass

import numpy as np

from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class RuleState:
    """The size of a rule's state."""

    vectors: int = 0
    """k, the number of vectors of shape (n,)."""
    lengths: int = 0
    """s: lengths of the last s updates, each at its number modulo s; 0 where there is none yet."""

    def size(self, weights: int) -> int:
        """Numbers in the store for a model of `weights` weights."""
        return weights * (1 + self.vectors) + self.lengths

    def begun(self, weights: Vector) -> Vector:
        """The store's initial vector for a job, from W of shape (n,)."""
        if not self:
            return weights
        whole = np.zeros(self.size(weights.size), np.float32)
        whole[: weights.size] = weights
        return whole

    def weights(self, whole: Vector) -> Vector:
        """W in a store's vector: a view of shape (n,)."""
        return whole[: (whole.size - self.lengths) // (1 + self.vectors)]

    def beside(self, whole: Vector) -> Vector:
        """The state in a store's vector, all but W: a view."""
        return whole[self.weights(whole).size :]

    def rows(self, whole: Vector) -> Vector:
        """The part of a store's vector that rules change, as a view: rows of shape (1 + k, n), or W of shape
        (n,) if k = 0.
        """
        if not self.vectors:
            return self.weights(whole)
        return whole[: whole.size - self.lengths].reshape(1 + self.vectors, -1)

    def lengths_of(self, whole: Vector) -> Vector:
        """The lengths in a store's vector: a view of shape (s,)."""
        return whole[whole.size - self.lengths :]

    def __bool__(self) -> bool:
        return self != STATELESS


STATELESS = RuleState()
