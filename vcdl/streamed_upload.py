"""An upload on its way from its file into the shared weights: each block is read, measured and folded in before the next one is read.

It crosses memory once and is never held as a whole; nor are the weights that its client started from, when the rule needs them. What is measured are the very bytes that are folded in, so that nobody can change
the file in between; whether it may count is known at its end, and W is committed only then.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vcdl.checks import NormMeter, Refusal, Refused
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Source
from vcdl.errors import WeightsFileError
from vcdl.rules import Rule, Update
from vcdl.stores import Change
from vcdl.stores.base import BLOCK
from vcdl.weights import Layout, Vector, WeightsFile, opened_weights
from vcdl.workunit import PLAIN, Transport


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
    base_version: int = 0
    """That the client started from."""

    @property
    def number(self) -> int:
        """Of the update in the job, counted from 1: the version that it makes."""
        return self.base_version + self.staleness + 1


class StreamedUpload(Change):
    """Folds the weights file of `path` in by `rule`."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        rule: Rule,
        facts: UploadFacts,
        judge: Judge | None,
        base: Path | None = None,
        transport: Transport = PLAIN,
    ) -> None:
        """`judge` None: it was judged before; `base`: the snapshot that the client started from, for a rule or a codec that needs it."""
        self._rule = rule
        self._facts = facts
        self._judge = judge
        self._meter = NormMeter(layout)
        self._up = up_encoding(transport, layout)
        if self._up.is_difference and base is None:
            raise ValueError("a difference without the weights that it belongs to: this is a mistake in vcdl")
        needs_base = rule.needs_base or self._up.is_difference
        self._buffer = np.empty(min(BLOCK, layout.size), np.float32)
        self._base_buffer = np.empty(self._buffer.size if needs_base else 0, np.float32)
        self._unreadable: Refused | None = None
        self._file: Source | None = None
        self._base: WeightsFile | None = None
        self._closing = ExitStack()
        try:
            self._file = self._closing.enter_context(self._up.opened(path))
        except WeightsFileError as error:
            self._give_up(error)
            return
        try:
            if needs_base and base is not None:
                self._base = self._closing.enter_context(opened_weights(base, layout.size))
        except WeightsFileError as error:
            self._give_up_the_base(error)

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
            self._give_up(error)
            return 0.0
        base: Vector | None = None
        if self._base is not None:
            base = self._base_buffer[: w.size]
            try:
                self._base.read(begin, base)
            except WeightsFileError as error:
                self._give_up_the_base(error)
                return 0.0
            if self._up.is_difference:
                with np.errstate(over="ignore", invalid="ignore"):
                    weights += base
        self._meter.add(weights, begin)
        update = Update(weights, facts.epoch, facts.staleness, facts.samples, facts.fraction, facts.number, base)
        with np.errstate(over="ignore", invalid="ignore"):  # what no finite weights come from is refused at its end
            return self._rule.apply(w, update, out)

    @property
    def refused(self) -> Refused | None:
        if self._unreadable is not None:
            return self._unreadable
        try:
            if self._judge is not None:
                self._judge.judge(self.norm)
        except Refused as refused:
            return refused
        return None

    def _give_up(self, error: WeightsFileError) -> None:
        self._file, self._unreadable = None, Refused(Refusal.UNREADABLE, str(error))

    def _give_up_the_base(self, error: WeightsFileError) -> None:
        detail = f"the weights that it started from, version {self._facts.base_version}, are not kept any more: {error}"
        self._file, self._unreadable = None, Refused(Refusal.WRONG_BASE, detail)

    def close(self) -> None:
        self._closing.close()
