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

    def apply(self, server: Vector, update: Update) -> float:
        """Change `server` (W, shape (n,)) in place; returns the weight given to the client, for the journal."""
        ...
