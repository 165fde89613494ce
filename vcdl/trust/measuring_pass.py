"""The first pass over a stranger's upload: all of it is measured before any of it is applied."""

import numpy as np

from vcdl.errors.refusal import Refused
from vcdl.rules.base import Update
from vcdl.rules.state import LENGTHS
from vcdl.trust.bounds import Bounds, StepLimits
from vcdl.trust.contract import UploadFacts
from vcdl.trust.reference_file import Reference
from vcdl.trust.step import Step, StepCheck
from vcdl.wire.layout import Vector

_GROWTH = 0.5
"""Exponent by which a step's length is assumed to grow with the samples trained, to compare parts with whole subtasks.
This is the exponent of a random walk, the smallest possible: if gradients agree, steps grow up to linearly. So an
honest part can look shorter than a whole subtask, but never longer."""


class MeasuringPass:
    """Measures the step of one upload block by block, judges it, and limits it (`Measurement`)."""

    cosine: float | None = None
    reference_cosine: float | None = None

    def __init__(
        self, bounds: Bounds, facts: UploadFacts, reference: Reference | None = None, steps: StepCheck | None = None
    ) -> None:
        """Prepare the measuring of one upload.

        Args:
            bounds: The bounds of the job.
            facts: The facts about the upload.
            reference: The server's own step, to compare with.
            steps: The check that may refuse the step, or None if the upload was accepted before.
        """
        self._bounds = bounds
        self._facts = facts
        self._reference = reference
        # An upload that was found suspicious has a small weight now, and must not be refused for the same reason again.
        self._steps = None if facts.is_doubted else steps
        self._sums = bounds.sums()
        self._limits: StepLimits | None = None

    def add(self, w: Vector, update: Update, begin: int) -> None:
        reference = None if self._reference is None else self._reference.block(begin, update.weights.size)
        self._bounds.measure(self._sums, update.weights, update.started_from, begin, w, reference)

    def judge(self, tail: Vector) -> Refused | None:
        facts, bounds, table = self._facts, self._bounds, tail.reshape(LENGTHS, -1)
        row = bounds.step_norms(self._sums, facts.rate * facts.fraction**_GROWTH)
        # Other uploads are compared only with uploads of full weight. The weight decides both, so folding again gives
        # the same table (decision 060).
        floors, is_measure = self._sums.scale_floors, facts.trust == 1.0
        self._limits = limits = bounds.limits(table, facts.number, row, floors, is_measure=is_measure)
        with np.errstate(over="ignore", invalid="ignore"):
            self.cosine, self.reference_cosine = bounds.cosines(self._sums, limits.factors)
        if self._steps is None:
            return None
        step = Step(limits.length, limits.usual, limits.furthest, self.cosine, self.reference_cosine)
        try:
            self._steps.judge(step)
        except Refused as refused:
            return refused
        return None

    def hold(self, weights: Vector, base: Vector, begin: int) -> None:
        if self._limits is None:
            raise ValueError("an upload is folded before it was judged: this is a bug in vcdl")
        self._bounds.hold(weights, base, begin, self._limits)
