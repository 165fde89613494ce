"""What a rule is given and what it must do."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Measured:
    """Of a whole upload, known before any of it is folded in, to a rule that measures (vcdl.rules.measuring)."""

    length: float
    """‖step‖ over the weights that are trained."""
    usual: float
    """The median of the lengths of the last updates, its own among them."""
    cosine: float | None = None
    """Between the step and that of held-out data; None when an update that counts already is folded in again."""


@dataclass(frozen=True)
class Update:
    """One upload, as a rule sees it."""

    weights: Vector
    """The client's weights C, shape (n,)."""
    epoch: int
    """Counted from 1."""
    staleness: int
    """τ: server version now − version the client started from."""
    samples: int
    fraction: float
    """Of the subtask that was trained, in (0, 1]."""
    number: int = 1
    """Of this update in the job, counted from 1: the version that it makes."""
    base: Vector | None = None
    """B, the weights that the client started from, shape (n,); there when the rule says `needs_base`."""
    measured: Measured | None = None
    """There when the rule measures, and has looked at all of the upload."""

    def part(self, of: slice) -> Self:
        """Some of its weights, as an update."""
        if of == slice(0, self.weights.size):
            return self
        base = None if self.base is None else self.base[of]
        return replace(self, weights=self.weights[of], base=base)

    @property
    def started_from(self) -> Vector:
        """B. Raises ValueError when it is not there, which is a mistake in vcdl."""
        if self.base is None:
            raise ValueError("the rule needs the weights that the client started from: this is a mistake in vcdl")
        return self.base

    @property
    def measures(self) -> Measured:
        """What was measured. Raises ValueError when nothing was, which is a mistake in vcdl."""
        if self.measured is None:
            raise ValueError("the rule needs the upload's length: this is a mistake in vcdl")
        return self.measured


class Rule(Protocol):
    """Folds one update into the server's weights.

    Whatever it knows beside them is in the update or in its `state`, and comes back the same when the update is folded in again: after a
    store has lost its memory, the journal and the kept uploads give the same weights to the last bit.
    """

    @property
    def needs_base(self) -> bool:
        """Whether an update must carry the weights that its client started from."""
        ...

    @property
    def state(self) -> State:
        """What it keeps in the store beside W."""
        ...

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        """Fold into `server` (W, shape (n,)) in place, or leave it and write the new W to `out`; returns the weight given to the client.

        With k vectors in its state, both have the shape (1 + k, n): W is the first row, and all rows of `out` are written.
        W may be any part of the model's weights, with the same part of the client's and of the base: a weight is changed by its own
        values alone. `out` may be `server`.
        """
        ...
