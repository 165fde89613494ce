"""The interface of an update rule, and the update that it applies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from vcdl.rules.state import STATELESS, RuleState
from vcdl.wire.layout import Vector
from vcdl.yaml_schema.section import Section


@dataclass(frozen=True)
class Update:
    """One upload in the form that a rule receives."""

    weights: Vector
    """The client's weights C, shape (n,)."""
    epoch: int
    """The epoch of the subtask, counted from 1."""
    staleness: int
    """τ: server version now − the client's base version."""
    samples: int
    fraction: float
    """Trained fraction of the subtask, in (0, 1]."""
    number: int = 1
    """Number of this update in the job, counted from 1: the version that it makes."""
    base: Vector | None = None
    """B, the weights that the client started from, shape (n,); present if the rule has `needs_base`."""
    updates: int = 0
    """Number of updates in the whole job, if nothing ends it earlier."""

    def part(self, of: slice) -> Self:
        """Return the update with only a part of its weights, as views."""
        # Models without statistics have a single part in each block, which needs no copy.
        if of == slice(0, self.weights.size):
            return self
        base = None if self.base is None else self.base[of]
        return replace(self, weights=self.weights[of], base=base)

    @property
    def started_from(self) -> Vector:
        """B, the weights that the client started from. Raises ValueError if missing, which is a bug in vcdl."""
        if self.base is None:
            raise ValueError("the rule needs the weights that the client started from: this is a bug in vcdl")
        return self.base

    @property
    def step(self) -> Vector:
        """C − B, a new array. Raises ValueError when B is missing."""
        return self.weights - self.started_from

    def place_in(self, buffer: int) -> int:
        """Return its position in its buffer, from 0, if each `buffer` consecutive updates of the job fill one."""
        return (self.number - 1) % buffer

    def is_last_of(self, buffer: int) -> bool:
        """Return whether it fills a buffer of `buffer` consecutive updates, so that a buffering rule now changes W."""
        return self.place_in(buffer) == buffer - 1


class Rule(Section, ABC):
    """One way to apply an update to the server's weights, and its settings: the section `update` of a job file.

    A subclass names itself, `rule: Literal["median"] = "median"`, and its fields are the keys of the section, each with
    a default. It is found by an entry point of that name (docs/plugins.md).

    A rule depends only on the update and its own `state`, so that applying an update again gives the same result: if a
    store loses its memory, the journal and the kept uploads restore the same weights to the last bit.
    """

    needs_base: ClassVar[bool] = True
    """Whether an update must carry the weights that its client started from."""
    averages: ClassVar[bool] = False
    """Whether each new weight lies between the server's and the client's. Such a rule may also be applied to statistics
    and moments; others could make a variance negative (vcdl.rules.statistics).
    """

    rule: str = ""
    """Its name."""

    @property
    def state(self) -> RuleState:
        """The rule's own numbers, which the store keeps next to W."""
        return STATELESS

    @abstractmethod
    def apply(self, server: Vector, update: Update) -> float:
        """Apply an update to `server` in place, and return the weight that the client's weights got.

        A rule changes each weight by that weight's own values alone, so that it can be applied to any part of them.

        Args:
            server: W, shape (n,). With k vectors in the rule's state the shape is (1 + k, n), and W is the first row.
            update: The update, with the same part of the client's and the base's weights.
        """


def mix(server: Vector, client: Vector, weight: float) -> None:
    """Set `W ← (1 − weight)·W + weight·C`, both of shape (n,), in place."""
    # In place and in float32 throughout, because recovery must get the same bits when it applies the update again.
    server *= np.float32(1.0 - weight)
    server += client * np.float32(weight)
