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
    """Server version now − version the client started from."""
    samples: int
    fraction: float
    """Of the subtask that was trained, in (0, 1]."""


class Rule(Protocol):
    """Folds one update into the server's weights."""

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        """Fold into `server` (W, shape (n,)) in place, or leave it and write the new W to `out`; returns the weight given to the client.

        W may be any part of the model's weights, with the same part of the client's: a weight is changed by its own values alone.
        """
        ...
