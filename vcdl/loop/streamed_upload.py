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
      │  first_pass ──────────────►   MeasuringPass           loop/measuring_pass.py, of strangers
      │  apply ───────────────────►   UploadReader.read       the same stretch of the upload
      │                               NormMeter.add           checks/norm.py
      │                               Rule.apply              rules/: W changes
      │  refused ─────────────────►   UploadCheck.judge       refused by its norm ─► Unfit: the others are folded
      ▼                                                       again without it; journal: update_refused
    Transaction.commit                stores/                 vector, version and record become visible together
      ▼
    Assimilator                       run/kept_weights.py, journal/journal.py: update_applied, Results.done

So an upload crosses memory once and is never held as a whole; nor is its base. The bytes that are measured are
the very bytes that are folded in: nobody can change the file in between. Whether it may count is known at its
end, and W is committed only then.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from vcdl.checks import NormMeter
from vcdl.checks.upload_reader import UploadReader, opened_upload
from vcdl.codecs.choose import up_encoding
from vcdl.errors.refusal import Refusal, Refused
from vcdl.rules.base import Rule, Update
from vcdl.rules.statistics import on_statistics
from vcdl.run.run import Run
from vcdl.stores import Change
from vcdl.stores.change import FOLD_BLOCK
from vcdl.trust.bounds import Bounds, Limits
from vcdl.trust.measuring_pass import MeasuringPass
from vcdl.trust.reference_file import KEPT_NUMBERS, Reference, ReferenceFile
from vcdl.trust.step import Step, StepCheck
from vcdl.wire.checksum import Checksum
from vcdl.wire.weights import Layout, Vector
from vcdl.wire.workunit import PLAIN, Transport

_BUFFERS_KEPT = 16
"""An upload and its base, of each that waits."""
_GROWTH = 0.5
"""Exponent by which a step is taken to grow with the samples trained, so that parts are judged beside whole subtasks.
That of a random walk, the least there is: where gradients agree steps grow up to evenly with the samples, so an honest
part looks shorter than a whole subtask, never longer.
"""


class Judge(Protocol):
    """Decides by its measures whether an upload may count."""

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
    updates: int = 0
    """Updates in the whole job, if nothing ends it earlier."""
    trust: float = 1.0
    """The factor on the fraction, by what is known of the host; one that counts fully is a measure for others."""
    is_doubted: bool = False
    """Whether it was found strange, and counts for little instead of being refused again."""
    rate: float = 1.0
    """The learning rate of its workunit, as a factor of the job's peak."""

    @property
    def number(self) -> int:
        """The number of the update in the job, counted from 1: the version that it makes."""
        return self.base_version + self.staleness + 1


class BufferPool:
    """Memory of the uploads that two passes keep, for the next ones: new memory costs more than reading."""

    def __init__(self) -> None:
        self._free: list[Vector] = []

    def acquire(self, size: int) -> Vector:
        """A vector of shape (size,), whose numbers are undefined."""
        return self._free.pop() if self._free and self._free[-1].size == size else np.empty(size, np.float32)

    def release(self, *buffers: Vector) -> None:
        """Take vectors back that nobody uses any more."""
        self._free += buffers[: max(0, _BUFFERS_KEPT - len(self._free))]


@dataclass(frozen=True)
class FoldSettings:
    """The part of a run that is the same for all its uploads."""

    layout: Layout
    rule: Rule
    bounds: Bounds | None = None
    """The bounds on strangers' uploads; None: clients are trusted."""
    transport: Transport = PLAIN
    most: int = 1
    """The most that a subtask may count: passes over its shard, in those that count as a whole subtask."""

    @classmethod
    def of(cls, run: Run) -> Self:
        training = run.job.training
        return cls(run.layout, run.rule, Bounds.of(run), run.transport, training.local_epochs // training.passes)

    def counted(self, fraction: float) -> float:
        """The part of a subtask that a rule counts an upload by: one that ends by time is whole from a pass on."""
        return min(1.0, self.most * fraction)


@dataclass(frozen=True)
class UploadFiles:
    """The files from which an upload is folded in."""

    path: Path
    base: Path | None = None
    """The snapshot of the client's base version, for bounds, a rule or a codec."""
    reference: ReferenceFile | None = None
    """The place of the reference update."""


class StreamedUpload(Change):
    """Folds an upload in, by a rule."""

    def __init__(
        self,
        files: UploadFiles,
        settings: FoldSettings,
        facts: UploadFacts,
        *,
        judge: Judge | None,
        steps: StepCheck | None = None,
        buffers: BufferPool | None = None,
        sums: bool = False,
    ) -> None:
        """`judge`: None for an upload that counts already. `steps`: the check of its step, where there are bounds.
        `buffers`: of a server that folds in many. `sums`: whether
        its checksum will be asked for.

        Raises FileUnavailable when the bounds need a reference update that is not there yet, or when this machine
        cannot read an existing file.
        """
        layout, rule, bounds = settings.layout, settings.rule, settings.bounds
        self._facts = facts
        self._layout = layout
        self._rule = rule
        self._fraction = settings.counted(facts.fraction)
        self._keeps = bounds is not None and layout.size <= KEPT_NUMBERS
        """Whether the first pass keeps what it has read for the second one."""
        width = layout.size if self._keeps else min(FOLD_BLOCK, layout.size)
        buffers = BufferPool() if buffers is None else buffers
        self._weights, self._base = buffers.acquire(width), buffers.acquire(width)
        """The client's weights and those of its base: all of them, or a block."""
        self._is_kept = self._has_base = False
        """Whether the first pass has read all of the upload and of its base."""
        self._state = rule.state if bounds is None else bounds.state_of(rule)
        self._on_statistics = on_statistics(rule)
        self._judge = judge
        self._steps = steps
        self._bounds = bounds
        self._meter = NormMeter(layout)
        self._checksum = Checksum() if sums else None
        self._weight = 0.0
        """The weight that the rule gave to the trained part."""
        self._upload: UploadReader | None = None
        """The open upload; None once it cannot be read."""
        self._unfit: Refused | None = None
        self._first_pass: MeasuringPass | None = None
        self._limits: Limits | None = None
        with ExitStack() as opened:
            opened.callback(buffers.release, self._weights, self._base)
            self._open(files, settings, opened)
            self._opened = opened.pop_all()

    def _open(self, files: UploadFiles, settings: FoldSettings, opened: ExitStack) -> None:
        bounds, up = settings.bounds, up_encoding(settings.transport, settings.layout)
        if bounds is not None:
            compared: Reference | None = None
            if self._steps is not None and files.reference is not None:
                compared = files.reference.open(opened)
            self._first_pass = MeasuringPass(bounds, compared, reads_twice=not self._keeps)
        try:
            with_base = files.base if settings.rule.needs_base or up.is_difference or bounds is not None else None
            self._upload = opened.enter_context(opened_upload(files.path, up, with_base))
        except Refused as refused:
            self._unfit = refused

    @property
    def norm(self) -> float:
        """The norm of what has been folded in."""
        return self._meter.norm

    @property
    def checksum(self) -> str:
        """The checksum of the client's weights, known after the last block; "" where nobody asks for it."""
        return "" if self._checksum is None else self._checksum.text

    @property
    def cosine(self) -> float | None:
        """Cosine of its step with the way of the shared weights since its base, known after the first pass."""
        return None if self._first_pass is None else self._first_pass.cosine

    @property
    def reference_cosine(self) -> float | None:
        """Cosine of its step with the reference update, likewise."""
        return None if self._first_pass is None else self._first_pass.reference_cosine

    @property
    def needs_first_pass(self) -> bool:
        return self._first_pass is not None

    def first_pass(self, w: Vector, begin: int) -> None:
        if self._first_pass is None:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if self._keeps and begin == 0:
                self._keep()
            update = self._read(begin, w.shape[-1])
            if update is not None:
                self._first_pass.add(w, update, begin)

    def first_pass_done(self, tail: Vector) -> None:
        if self._upload is None or self._first_pass is None:
            return
        facts, state = self._facts, self._state
        self._limits = self._first_pass.limits(
            facts.number, state.table_of(tail), facts.rate * self._fraction**_GROWTH, is_measure=facts.trust == 1.0
        )
        if self._steps is not None:
            self._unfit = self._strange_among_others(self._steps)

    def apply(self, w: Vector, begin: int) -> float:
        update = self._read(begin, w.shape[-1])
        if update is None:
            return 0.0
        if not self._is_kept:
            self._sum(update.weights, begin)
            self._meter.add(update.weights, begin)
            if self._first_pass is not None:
                self._first_pass.note_folded(update)
        if update.base is not None:
            self._shorten(update.weights, update.base, begin)
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
        self._opened.close()

    def _strange_among_others(self, steps: StepCheck) -> Refused | None:
        """Why its step is no honest client's."""
        if self._limits is None or self._facts.is_doubted:
            return None
        step = Step(
            length=self._limits.length,
            usual=self._limits.usual,
            furthest=self._limits.furthest,
            cosine=self.cosine,
            reference=self.reference_cosine,
        )
        try:
            steps.judge(step)
        except Refused as refused:
            return refused
        return None

    def _keep(self) -> None:
        """Read all of it."""
        if self._upload is None:
            return
        try:
            self._has_base = self._upload.read(0, self._weights, self._base) is not None
        except Refused as refused:
            self._upload, self._unfit = None, refused
            return
        self._is_kept = True
        self._sum(self._weights, 0)
        self._meter.add(self._weights, 0)

    def _sum(self, weights: Vector, begin: int) -> None:
        if self._checksum is not None:
            self._checksum.add(weights, begin)

    def _shorten(self, weights: Vector, base: Vector, begin: int) -> None:
        """Shorten a block, or all of it, as the bounds say."""
        if self._bounds is not None and self._limits is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._bounds.hold(weights, base, begin, self._limits)

    def _read(self, begin: int, size: int) -> Update | None:
        """A block of `size` weights from number `begin` on; None when it cannot be read."""
        if self._upload is None:
            return None
        at, has_base = slice(begin, begin + size) if self._is_kept else slice(size), self._has_base
        weights, base = self._weights[at], self._base[at]
        if not self._is_kept:
            try:
                has_base = self._upload.read(begin, weights, base) is not None
            except Refused as refused:
                self._upload, self._unfit = None, refused
                return None
        facts = self._facts
        return Update(
            weights=weights,
            epoch=facts.epoch,
            staleness=facts.staleness,
            samples=facts.samples,
            fraction=self._fraction * facts.trust,
            number=facts.number,
            updates=facts.updates,
            base=base if has_base else None,
        )
