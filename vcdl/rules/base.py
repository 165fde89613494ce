"""The contract of an update rule, and the update that it gets."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Measured:
    """Measures of a whole upload, known before any of it is applied, for a rule that needs them
    (vcdl.rules.measuring).
    """

    length: float
    """‖step‖ over the trained weights."""
    usual: float
    """The median of the last updates' lengths, including its own."""
    cosine: float | None = None
    """Cosine between the step and the reference update; None when an update that already counts is applied again."""


@dataclass(frozen=True)
class Update:
    """One upload in the form that a rule gets."""

    weights: Vector
    """The client's weights C, shape (n,)."""
    epoch: int
    """Counted from 1."""
    staleness: int
    """τ: server version now − the client's base version."""
    samples: int
    fraction: float
    """Trained fraction of the subtask, in (0, 1]."""
    number: int = 1
    """Number of this update in the job, counted from 1: the version that it makes."""
    base: Vector | None = None
    """B, the weights that the client started from, shape (n,); present when the rule says `needs_base`."""
    measured: Measured | None = None
    """Present when the rule measures, after a first pass over the upload."""

    def part(self, of: slice) -> Self:
        """The same update for a part of the weights."""
        if of == slice(0, self.weights.size):
            return self
        base = None if self.base is None else self.base[of]
        return replace(self, weights=self.weights[of], base=base)

    @property
    def started_from(self) -> Vector:
        """B. Raises ValueError when it is missing, which is a bug in vcdl."""
        if self.base is None:
            raise ValueError("the rule needs the weights that the client started from: this is a bug in vcdl")
        return self.base

    @property
    def step(self) -> Vector:
        """C − B, a new array. Raises ValueError when B is missing."""
        return self.weights - self.started_from

    def place_in(self, buffer: int) -> int:
        """Its place among K = `buffer` updates, from 0 to K − 1, by its number in the job."""
        return (self.number - 1) % buffer

    def is_last_of(self, buffer: int) -> bool:
        """Whether it completes its buffer, so that the rule moves W."""
        return self.place_in(buffer) == buffer - 1

    @property
    def measures(self) -> Measured:
        """The measures. Raises ValueError when they are missing, which is a bug in vcdl."""
        if self.measured is None:
            raise ValueError("the rule needs the upload's length: this is a bug in vcdl")
        return self.measured


class Rule(Protocol):
    """Applies one update to the server's weights.

    A rule knows only the update and its own `state`, so applying an update again gives the same result. After a
    store has lost its memory, the journal and the kept uploads restore the same weights to the last bit.
    """

    @property
    def needs_base(self) -> bool:
        """Whether an update must carry the weights that its client started from."""
        ...

    @property
    def state(self) -> RuleState:
        """The rule's own numbers in the store beside W."""
        ...

    def apply(self, server: Vector, update: Update) -> float:
        """Apply an update to `server`, in place; returns the client's weight in the result.

        `server` is W, shape (n,). With k vectors in the rule's state it has the shape (1 + k, n), and W is the first
        row. W may be any part of the model's weights, with the same part of the client's and of the base. Each weight
        changes by its own values alone.
        """
        ...


def mix(server: Vector, client: Vector, weight: float) -> None:
    """`W ← (1 − weight)·W + weight·C`, both of shape (n,), in place."""
    server *= np.float32(1.0 - weight)
    server += client * np.float32(weight)
