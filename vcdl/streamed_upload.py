"""An upload on its way from its file into the shared weights: each block is read, measured and folded in before the next one is read.

It crosses memory once and is never held as a whole; nor are the weights that its client started from, when the rule needs them. What is
measured are the very bytes that are folded in, so that nobody can change the file in between; whether it may count is known at its end,
and W is committed only then. A rule that measures has it read twice (vcdl.upload_look).
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from vcdl.checks import NormMeter, Refusal, Refused
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Source
from vcdl.errors import StoreUnavailable, WeightsFileError
from vcdl.rules import Measured, MeasuringRule, Rule, Update, on_statistics
from vcdl.stores import Change
from vcdl.stores.base import BLOCK
from vcdl.upload_look import UploadLook
from vcdl.weights import Layout, Vector, WeightsFile, opened_weights
from vcdl.workunit import PLAIN, Transport

_REFUSED_AT_MOST = 2
"""Attempts at a subtask, by a rule that measures."""


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
    attempt: int = 0
    """Of the subtask, from 0."""

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
        held_out: Path | None = None,
        transport: Transport = PLAIN,
    ) -> None:
        """`judge` None: it was judged before; `base`: the snapshot that the client started from, for a rule or a codec that needs it;
        `held_out`: the step of held-out data. Raises StoreUnavailable when a rule asks for that one and the evaluator has not made it yet,
        or when this machine cannot read a file that is there.
        """
        self._rule = rule
        self._on_statistics = on_statistics(rule)
        self._layout = layout
        self._weight = 0.0
        """That the rule gave to what is trained."""
        self._facts = facts
        self._judge = judge
        self._meter = NormMeter(layout)
        self._up = up_encoding(transport, layout)
        if self._up.is_difference and base is None:
            raise ValueError("a difference without the weights that it belongs to: this is a mistake in vcdl")
        needs_base = rule.needs_base or self._up.is_difference
        self._buffer = np.empty(min(BLOCK, layout.size), np.float32)
        self._base_buffer = np.empty(self._buffer.size if needs_base else 0, np.float32)
        self._unfit: Refused | None = None
        self._file: Source | None = None
        self._base: WeightsFile | None = None
        self._closing = ExitStack()
        self._look = self._new_look(rule, layout, held_out) if isinstance(rule, MeasuringRule) else None
        self._measured: Measured | None = None
        try:
            self._open(path, base if needs_base else None)
        except StoreUnavailable:
            self.close()
            raise

    @property
    def norm(self) -> float:
        """Of what has been read."""
        return self._meter.norm

    @property
    def looks(self) -> bool:
        return self._look is not None

    def look(self, w: Vector, begin: int) -> None:
        update = self._read(begin, w.shape[-1])
        if update is not None and self._look is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._look.add(w, update, begin)

    def has_looked(self, lengths: Vector) -> None:
        if self._file is not None and self._look is not None and isinstance(self._rule, MeasuringRule):
            self._measured = self._look.measured(self._facts.number, lengths)
            # What is not finite is refused at its end. When two others were refused, or lost, this one is believed: otherwise a rule that
            # finds all of them strange would hold the job up for ever.
            if (
                self._judge is not None
                and self._facts.attempt < _REFUSED_AT_MOST
                and np.isfinite(self._measured.length)
            ):
                self._unfit = self._rule.refused(self._measured)

    def apply(self, w: Vector, begin: int, out: Vector) -> float:
        update = self._read(begin, w.shape[-1])
        if update is None:
            return 0.0
        self._meter.add(update.weights, begin)
        if self._look is not None:
            self._look.fold(update)
            update = replace(update, measured=self._measured)
        with np.errstate(over="ignore", invalid="ignore"):  # what no finite weights come from is refused at its end
            for part, is_trained in self._layout.parts(begin, begin + w.shape[-1]):
                rule = self._rule if is_trained else self._on_statistics
                weight = rule.apply(w[..., part], update.part(part), out[..., part])
                self._weight = weight if is_trained else self._weight
        return self._weight

    def _read(self, begin: int, size: int) -> Update | None:
        """A block of `size` weights from number `begin` on; None when it cannot be read."""
        if self._file is None:
            return None
        weights, facts = self._buffer[:size], self._facts
        try:
            self._file.read(begin, weights)
        except WeightsFileError as error:
            self._give_up(error)
            return None
        base: Vector | None = None
        if self._base is not None:
            base = self._base_buffer[:size]
            try:
                self._base.read(begin, base)
            except WeightsFileError as error:
                self._give_up_the_base(error)
                return None
            self._up.add_base(base, weights, begin)
        return Update(weights, facts.epoch, facts.staleness, facts.samples, facts.fraction, facts.number, base)

    def _open(self, path: Path, base: Path | None) -> None:
        try:
            self._file = self._closing.enter_context(self._up.opened(path))
        except WeightsFileError as error:
            self._give_up(error)
            return
        try:
            if base is not None:
                self._base = self._closing.enter_context(opened_weights(base, self._layout.size))
        except WeightsFileError as error:
            self._give_up_the_base(error)

    @property
    def refused(self) -> Refused | None:
        if self._unfit is not None:
            return self._unfit
        if self._look is not None and not self._look.is_what_was_folded:
            return Refused(Refusal.UNREADABLE, "it was changed while it was read")
        try:
            if self._judge is not None:
                self._judge.judge(self.norm)
        except Refused as refused:
            return refused
        return None

    def _new_look(self, rule: MeasuringRule, layout: Layout, held_out: Path | None) -> UploadLook:
        step: WeightsFile | None = None
        if rule.asks_held_out and self._judge is not None and held_out is not None:
            try:
                step = self._closing.enter_context(opened_weights(held_out, layout.size))
            except WeightsFileError as error:
                raise StoreUnavailable(
                    "no step of held-out data to compare uploads with yet: the evaluator makes it when it begins; see that it runs"
                ) from error
        return UploadLook(rule, layout, self._buffer.size, step)

    def _give_up(self, error: WeightsFileError) -> None:
        self._file, self._unfit = None, Refused(Refusal.UNREADABLE, str(error))

    def _give_up_the_base(self, error: WeightsFileError) -> None:
        detail = f"the weights that it started from, version {self._facts.base_version}, are not kept any more: {error}"
        self._file, self._unfit = None, Refused(Refusal.WRONG_BASE, detail)

    def close(self) -> None:
        self._closing.close()
