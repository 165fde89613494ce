"""What a rule is given and what it must do."""

from dataclasses import dataclass
from typing import Protocol

from vcdl.weights import Vector


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

    @property
    def started_from(self) -> Vector:
        """B. Raises ValueError when it is not there, which is a mistake in vcdl."""
        if self.base is None:
            raise ValueError("the rule needs the weights that the client started from: this is a mistake in vcdl")
        return self.base


class Rule(Protocol):
    """Folds one update into the server's weights.

    Whatever it knows beside them is in the update, and comes back the same when the update is folded in again: after a store has
    lost its memory, the journal and the kept uploads give the same weights to the last bit.
    """

    @property
    def needs_base(self) -> bool:
        """Whether an update must carry the weights that its client started from."""
        ...

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        """Fold into `server` (W, shape (n,)) in place, or leave it and write the new W to `out`; returns the weight given to the client.

        W may be any part of the model's weights, with the same part of the client's and of the base: a weight is changed by its own
        values alone. `out` may be `server`.
        """
        ...
