"""Rules that must measure a whole upload before they apply any of it."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from vcdl.checks.refusal import Refused
from vcdl.rules.base import Measured, Update
from vcdl.rules.state import RuleState
from vcdl.wire.weights import Vector


class MeasuringRule(ABC):
    """A Rule that gets `Update.measured`, from a first pass over the upload."""

    needs_base: ClassVar[bool] = True

    @property
    def needs_reference(self) -> bool:
        """Whether the rule needs the reference update, for `Measured.cosine`."""
        return False

    @property
    @abstractmethod
    def state(self) -> RuleState:
        """The rule's state, with LENGTHS lengths."""

    @abstractmethod
    def step(self, server: Vector, update: Update) -> Vector:
        """The vector to measure for a block, shape (m,): a new array; `server` as in `apply`, and unchanged."""

    def refused(self, measured: Measured) -> Refused | None:
        """The reason why the upload must not count; None to accept it."""
        return None

    @abstractmethod
    def apply(self, server: Vector, update: Update) -> float:
        """As Rule.apply."""


def shortening(measured: Measured, factor: float) -> float:
    """κ in (0, 1]: the factor that limits a step to `factor` times the usual length."""
    limit = factor * measured.usual
    return 1.0 if measured.length <= limit else limit / measured.length


def usual_of(table: Vector) -> Vector:
    """The usual length in each column of a table of lengths, shape (r, c) → (c,): the lower median of those > 0.

    0 where there is none.
    """
    rows = table.shape[0]
    if table.size and table.all():  # as soon as the table is full: no column has a place of its own for the middle
        full: Vector = np.partition(table, (rows - 1) // 2, axis=0)[(rows - 1) // 2]
        return full
    known = np.sort(table, axis=0)
    count = np.count_nonzero(known, axis=0)
    middle = rows - count + np.maximum(count - 1, 0) // 2  # the zeros of an empty column are all alike
    usual: Vector = np.take_along_axis(known, np.minimum(middle, rows - 1)[None], axis=0)[0]
    return usual
