"""One upload on its way into the weights: each block is read, measured and folded in before the next one is read.

    Results.claim                     loop/grid.py            the file, and the name of its workunit
      ▼
    Assimilator.run_once              loop/assimilator.py     up to eight that wait
      │  UploadCheck.read_header      checks/upload.py        refused by its header ─► journal: update_refused
      ▼
    WeightStore.fold                  stores/base.py          begins a transaction: stores/file.py, or server_store.py
      │  a subtask that is known      (redis.py, mysql.py)    its first record, and nothing of the upload is read
      │  Fold.begin(staleness) ───►   back in the assimilator, which opens a StreamedUpload (here)
      │      opened_upload            checks/upload_reader.py the one reader: any encoding, and the base where needed
      │          Encoding.opened      codecs/encoding.py      decodes codecs/encoded_file.py, or plain wire/weights.py
      ▼
    fold_changes                      stores/change.py        for each block of W, in place:
      │  first_pass ──────────────►   MeasuringPass           loop/measuring_pass.py, where the rule must measure first
      │  apply ───────────────────►   UploadReader.read       the same stretch of the upload
      │                               NormMeter.add           checks/norm.py
      │                               Rule.apply              rules/: W changes
      │  refused ─────────────────►   UploadCheck.judge       refused by its norm ─► Unfit: the others are folded
      ▼                                                       again without it; journal: update_refused
    Transaction.commit                stores/                 vector, version and record become visible together
      ▼
    Assimilator                       run/kept_uploads.py, journal/journal.py: update_applied, Results.done

So an upload crosses memory once and is never held as a whole; nor is its base. The bytes that are measured are
the very bytes that are folded in: nobody can change the file in between. Whether it may count is known at its
end, and W is committed only then.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from vcdl.checks import NormMeter, Refusal, Refused
from vcdl.checks.upload_reader import UploadReader, opened_upload
from vcdl.codecs.choose import up_encoding
from vcdl.errors import FileUnavailable, WeightsFileError
from vcdl.loop.measuring_pass import MeasuringPass
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.measuring import MeasuringRule
from vcdl.rules.statistics import on_statistics
from vcdl.stores import Change
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.weights import Layout, Vector, WeightsFile, opened_weights
from vcdl.wire.workunit import PLAIN, Transport

_REFUSED_AT_MOST = 2
"""Attempts at a subtask that a measuring rule may refuse."""


class Judge(Protocol):
    """Decides by its norm whether an upload may count."""

    def judge(self, norm: float) -> None:
        """Raises Refused."""
        ...


@dataclass(frozen=True)
class UploadFacts:
    """The facts about an upload that a rule gets beside its weights."""

    epoch: int
    staleness: int
    samples: int
    fraction: float
    base_version: int = 0
    """The version that the client started from."""
    attempt: int = 0
    """The attempt at the subtask, from 0."""
    trust: float = 1.0
    """The factor on the fraction, by what is known of the host."""

    @property
    def number(self) -> int:
        """The number of the update in the job, counted from 1: the version that it makes."""
        return self.base_version + self.staleness + 1


class StreamedUpload(Change):
    """Folds the upload at `path` in, by a rule."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        rule: Rule,
        facts: UploadFacts,
        *,
        judge: Judge | None,
        base: Path | None = None,
        reference: Path | None = None,
        transport: Transport = PLAIN,
    ) -> None:
        """`judge`: None for an upload that counts already; `base`: the snapshot of the client's base version, for a
        rule or a codec that needs it; `reference`: the file of the reference update.

        Raises FileUnavailable when the rule needs a reference update that is not there yet, or when this machine
        cannot read an existing file.
        """
        self._facts = facts
        self._layout = layout
        self._rule = rule
        self._on_statistics = on_statistics(rule)
        self._judge = judge
        self._meter = NormMeter(layout)
        self._buffer = np.empty(min(FOLD_BLOCK, layout.size), np.float32)
        self._weight = 0.0
        """The weight that the rule gave to the trained part."""
        self._upload: UploadReader | None = None
        """None once it cannot be read."""
        self._unfit: Refused | None = None
        self._first_pass: MeasuringPass | None = None
        self._measured: Measured | None = None
        up = up_encoding(transport, layout)
        with ExitStack() as opened:
            if isinstance(rule, MeasuringRule):
                file: WeightsFile | None = None
                if rule.needs_reference and judge is not None and reference is not None:
                    file = _opened_reference(opened, reference, layout.size)
                self._first_pass = MeasuringPass(rule, layout, file)
            try:
                with_base = base if rule.needs_base or up.is_difference else None
                self._upload = opened.enter_context(opened_upload(path, up, with_base))
            except Refused as refused:
                self._unfit = refused
            self._files = opened.pop_all()

    @property
    def norm(self) -> float:
        """The norm of what has been folded in."""
        return self._meter.norm

    @property
    def needs_first_pass(self) -> bool:
        return self._first_pass is not None

    def first_pass(self, w: Vector, begin: int) -> None:
        update = self._read(begin, w.shape[-1])
        if update is not None and self._first_pass is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._first_pass.add(w, update, begin)

    def first_pass_done(self, lengths: Vector) -> None:
        if self._upload is None or self._first_pass is None or not isinstance(self._rule, MeasuringRule):
            return
        self._measured = self._first_pass.result(self._facts.number, lengths)
        # Numbers that are not finite are refused at the end. The third attempt at a subtask is believed: otherwise a
        # rule that finds all of them strange would hold the job up for ever.
        is_judged = self._judge is not None and self._facts.attempt < _REFUSED_AT_MOST
        if is_judged and np.isfinite(self._measured.length):
            self._unfit = self._rule.refused(self._measured)

    def apply(self, w: Vector, begin: int) -> float:
        update = self._read(begin, w.shape[-1])
        if update is None:
            return 0.0
        self._meter.add(update.weights, begin)
        if self._first_pass is not None:
            self._first_pass.note_folded(update)
            update = replace(update, measured=self._measured)
        with np.errstate(over="ignore", invalid="ignore"):  # weights that become infinite are refused at the end
            for part, is_trained in self._layout.parts(begin, begin + w.shape[-1]):
                rule = self._rule if is_trained else self._on_statistics
                weight = rule.apply(w[..., part], update.part(part))
                self._weight = weight if is_trained else self._weight
        return self._weight

    @property
    def refused(self) -> Refused | None:
        if self._unfit is not None:
            return self._unfit
        if self._first_pass is not None and not self._first_pass.is_what_was_folded:
            return Refused(Refusal.UNREADABLE, "it was changed while it was read")
        try:
            if self._judge is not None:
                self._judge.judge(self.norm)
        except Refused as refused:
            return refused
        return None

    def close(self) -> None:
        self._files.close()

    def _read(self, begin: int, size: int) -> Update | None:
        """A block of `size` weights from number `begin` on; None when it cannot be read."""
        if self._upload is None:
            return None
        weights, facts = self._buffer[:size], self._facts
        try:
            base = self._upload.read(begin, weights)
        except Refused as refused:
            self._upload, self._unfit = None, refused
            return None
        return Update(
            weights=weights,
            epoch=facts.epoch,
            staleness=facts.staleness,
            samples=facts.samples,
            fraction=facts.fraction * facts.trust,
            number=facts.number,
            base=base,
        )


def _opened_reference(opened: ExitStack, path: Path, size: int) -> WeightsFile:
    try:
        return opened.enter_context(opened_weights(path, size))
    except WeightsFileError as error:
        raise FileUnavailable(
            "no reference update to compare uploads with yet: the evaluator makes it when it starts; see that it runs"
        ) from error
