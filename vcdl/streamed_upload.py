"""An upload on its way from its file into the shared weights: each block is read, measured and folded in before the next one is read.

It crosses memory once and is never held as a whole. What is measured are the very bytes that are folded in, so that nobody can change
the file in between; whether it may count is known at its end, and W is committed only then.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vcdl.checks import NormMeter, Refusal, Refused
from vcdl.errors import WeightsFileError
from vcdl.rules import Rule, Update
from vcdl.stores import Change
from vcdl.stores.base import BLOCK
from vcdl.weights import Layout, Vector, WeightsFile, opened_weights


class Judge(Protocol):
    """Decides by its norm whether an upload may count."""

    def judge(self, norm: float) -> None:
        """Raises Refused."""
        ...


@dataclass(frozen=True)
class UploadFacts:
    """What a rule is told of an upload beside its weights."""

    epoch: int
    staleness: int
    samples: int
    fraction: float


class StreamedUpload(Change):
    """Folds the weights file of `path` in by `rule`; `judge` None: it was judged before."""

    def __init__(self, path: Path, layout: Layout, rule: Rule, facts: UploadFacts, judge: Judge | None) -> None:
        self._rule = rule
        self._facts = facts
        self._judge = judge
        self._meter = NormMeter(layout)
        self._buffer = np.empty(min(BLOCK, layout.size), np.float32)
        self._unreadable: WeightsFileError | None = None
        self._file: WeightsFile | None = None
        self._closing = ExitStack()
        try:
            self._file = self._closing.enter_context(opened_weights(path, layout.size))
        except WeightsFileError as error:
            self._unreadable = error

    @property
    def norm(self) -> float:
        """Of what has been read."""
        return self._meter.norm

    def apply(self, w: Vector, begin: int, out: Vector) -> float:
        if self._file is None:
            return 0.0
        weights, facts = self._buffer[: w.size], self._facts
        try:
            self._file.read(begin, weights)
        except WeightsFileError as error:
            self._unreadable, self._file = error, None
            return 0.0
        self._meter.add(weights, begin)
        update = Update(weights, facts.epoch, facts.staleness, facts.samples, facts.fraction)
        return self._rule.apply(w, update, out)

    @property
    def refused(self) -> Refused | None:
        if self._unreadable is not None:
            return Refused(Refusal.UNREADABLE, str(self._unreadable))
        try:
            if self._judge is not None:
                self._judge.judge(self.norm)
        except Refused as refused:
            return refused
        return None

    def close(self) -> None:
        self._closing.close()
