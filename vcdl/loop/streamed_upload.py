"""One upload on its way into the weights: each block is read, measured and folded in before the next one is read.

    Results.claim                     loop/grid.py            the file, and the name of its workunit
      ▼
    Assimilator.run_once              loop/assimilator.py     up to eight that wait
      │  UploadCheck.read_header      checks/upload.py        refused by its header ─► journal: update_refused
      ▼
    WeightStore.fold                  stores/base.py          begins a transaction: stores/file.py, or server_store.py
      │  a subtask that is known      (redis.py, mysql.py)    its first record, and nothing of the upload is read
      │  Fold.begin(staleness) ───►   back in the assimilator, which opens it (here)
      │      opened_upload            checks/upload_reader.py the one reader: any encoding, and the base where needed
      │          Encoding.opened      codecs/encoding.py      decodes codecs/encoded_file.py, or plain wire/weights.py
      ▼
    fold_changes                      stores/change.py        for each block of W, in place:
      │  first_pass ──────────────►   MeasuringPass           trust/measuring_pass.py, of strangers
      │  apply ───────────────────►   UploadReader.read       the same stretch of the upload
      │                               NormMeter.add           checks/norm.py
      │                               Rule.apply              rules/: W changes
      │  refused ─────────────────►   UploadCheck.judge       refused by its norm ─► Unfit: the others are folded
      ▼                                                       again without it; journal: update_refused
    Transaction.commit                stores/                 vector, version and record become visible together
      ▼
    Assimilator                       run/kept_weights.py, journal/journal.py: update_applied, Results.done

So neither an upload nor its base is ever held in memory as a whole. Exactly the bytes that were measured are folded in,
even if the file is changed in between. Whether an upload is accepted is known at its end, and W is committed only then.
"""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from vcdl.checks import NormMeter
from vcdl.checks.upload_reader import UploadReader, open_upload
from vcdl.codecs.choose import up_encoding
from vcdl.errors.refusal import Refusal, Refused
from vcdl.rules.base import Rule, Update
from vcdl.rules.statistics import on_statistics
from vcdl.run.run import Run
from vcdl.stores import Change
from vcdl.stores.change import FOLD_BLOCK, KEPT_NUMBERS
from vcdl.trust.contract import Measurement, Measuring, UploadFacts
from vcdl.wire.checksum import Checksum
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.workunit import PLAIN, Transport

_BUFFERS_KEPT = 16
"""Buffers kept for reuse: enough for eight waiting uploads and their bases."""


Judge = Callable[[float], None]
"""Judges the norm of an upload.

Raises:
    Refused: The norm is out of bounds.
"""


class BufferPool:
    """Keeps the buffers of finished uploads for the next ones, because allocating memory takes longer than reading."""

    def __init__(self) -> None:
        self._free: list[Vector] = []

    def acquire(self, size: int) -> Vector:
        """Return a vector of shape (size,) with undefined values."""
        # All uploads of a run have one size, so the last one fits except after a change between blocks and whole
        # vectors.
        return self._free.pop() if self._free and self._free[-1].size == size else np.empty(size, np.float32)

    def release(self, *buffers: Vector) -> None:
        """Return vectors to the pool; the caller must no longer use them."""
        self._free += buffers[: max(0, _BUFFERS_KEPT - len(self._free))]


@dataclass(frozen=True)
class FoldSettings:
    """The settings that are the same for all uploads of a run."""

    layout: Layout
    rule: Rule
    measuring: Measuring
    """Starts the measuring of an upload, or returns None if the upload needs none."""
    transport: Transport = PLAIN
    most: int = 1
    """The factor by which the fraction of a subtask is multiplied before it is limited to 1 (`most_counted`)."""

    @classmethod
    def of(cls, run: Run, measuring: Measuring) -> Self:
        """Return the settings of a run."""
        return cls(run.layout, run.rule, measuring, run.transport, run.job.training.most_counted)

    def counted_fraction(self, fraction: float) -> float:
        """Return the fraction by which a rule weights an upload, from 0 to 1.

        It is the fraction of its subtask that was trained. In jobs whose subtasks end by time, an upload already counts
        in full when it has trained one pass over its shard.
        """
        return min(1.0, self.most * fraction)


class BlockReader:
    """Reads an open upload in blocks, as the `Update` that a rule expects.

    The vectors of an Update are buffers that the next block overwrites. Norm and checksum are known after the last
    block; `close` returns the buffers to the pool.
    """

    def __init__(self, upload: UploadReader, layout: Layout, facts: UploadFacts, buffers: BufferPool) -> None:
        self._upload = upload
        self._facts = facts
        self._meter = NormMeter(layout)
        self.sum: Checksum | None = None
        """The checksum of the client's weights, or None if it is not needed."""
        width = self._width(layout)
        self._weights, self._base = buffers.acquire(width), buffers.acquire(width)
        """The client's weights and those of its base: one block, or all."""
        self.close = partial(buffers.release, self._weights, self._base)

    @property
    def norm(self) -> float:
        """The norm of the client's weights."""
        return self._meter.norm

    @property
    def is_changed(self) -> bool:
        """Whether the file changed between the two passes over it; always False with one pass."""
        return False

    def look(self, begin: int, size: int) -> Update:
        """Read a block in the first of two passes.

        Raises:
            Refused: The upload cannot be used.
            FileUnavailable: The file cannot be read now.
        """
        return self.read(begin, size)

    def read(self, begin: int, size: int) -> Update:
        """Read the block of `size` weights from number `begin` on.

        Raises:
            Refused: The upload cannot be used.
            FileUnavailable: The file cannot be read now.
        """
        has_base = self._fill(begin, size)
        self._measure(begin, size)
        return self._update(slice(size), has_base)

    @staticmethod
    def _width(layout: Layout) -> int:
        """Return the size of the buffers, in numbers."""
        return min(FOLD_BLOCK, layout.size)

    def _fill(self, begin: int, size: int) -> bool:
        """Read a block into the buffers, and return whether the base was read too."""
        return self._upload.read(begin, self._weights[:size], self._base[:size]) is not None

    def _measure(self, begin: int, size: int) -> None:
        """Add the block in the buffer to checksum and norm."""
        if self.sum is not None:
            self.sum.add(self._weights[:size], begin)
        self._meter.add(self._weights[:size], begin)

    def _update(self, at: slice, has_base: bool) -> Update:
        """Return a part of the buffers as the update that a rule gets."""
        facts = self._facts
        return Update(
            weights=self._weights[at],
            epoch=facts.epoch,
            staleness=facts.staleness,
            samples=facts.samples,
            fraction=facts.fraction * facts.trust,
            number=facts.number,
            updates=facts.updates,
            base=self._base[at] if has_base else None,
        )


class TwiceReader(BlockReader):
    """Reads a large upload from its file in each of two passes, and detects whether both got the same bytes."""

    def __init__(self, upload: UploadReader, layout: Layout, facts: UploadFacts, buffers: BufferPool) -> None:
        super().__init__(upload, layout, facts, buffers)
        # This must be a cryptographic hash, not the fast checksum: a hostile client that can write to the file could
        # search for bytes with an equal checksum.
        self._looked_at, self._read = hashlib.sha256(), hashlib.sha256()
        self._has_read = False

    @property
    def is_changed(self) -> bool:
        return self._has_read and self._looked_at.digest() != self._read.digest()

    def look(self, begin: int, size: int) -> Update:
        has_base = self._fill(begin, size)
        self._looked_at.update(self._weights[:size].data)
        return self._update(slice(size), has_base)

    def read(self, begin: int, size: int) -> Update:
        update = super().read(begin, size)
        self._read.update(update.weights.data)
        self._has_read = self._has_read or size > 0
        return update


class WholeReader(BlockReader):
    """Keeps a small upload in memory from the first pass to the second."""

    _has_base: bool | None = None
    """Whether the base was read too, or None if nothing is read yet."""

    @staticmethod
    def _width(layout: Layout) -> int:
        return layout.size

    def read(self, begin: int, size: int) -> Update:
        # The first pass reads the file, and the second one gets the same memory. So a change of the file in between has
        # no effect.
        if self._has_base is None:
            self._has_base = self._fill(0, self._weights.size)
            self._measure(0, self._weights.size)
        return self._update(slice(begin, begin + size), self._has_base)


class StreamedUpload(Change):
    """Applies an upload by a rule while it is read, in one pass."""

    cosine: float | None = None
    """`Measurement.cosine`; None without a measurement."""
    reference_cosine: float | None = None

    def __init__(self, reader: BlockReader, settings: FoldSettings, judge: Judge | None, opened: ExitStack) -> None:
        self._reader = reader
        self._layout, self._rule = settings.layout, settings.rule
        self._on_statistics = on_statistics(settings.rule)
        self._judge = judge
        self._opened = opened
        self._weight = 0.0
        """The weight that the rule gave to the trained part."""
        self._unfit: Refused | None = None

    @property
    def norm(self) -> float:
        """The norm of the client's weights as far as they were read."""
        return self._reader.norm

    @property
    def checksum(self) -> str:
        """The checksum of the client's weights, known after the last block; "" if it is not needed."""
        return "" if self._reader.sum is None else self._reader.sum.text

    def apply(self, w: Vector, begin: int) -> float:
        if self._unfit is not None:
            return 0.0
        try:
            update = self._next(begin, w.shape[-1])
        except Refused as refused:
            self._unfit = refused
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # weights that become infinite are refused at the end
            for part, is_trained in self._layout.parts(begin, begin + w.shape[-1]):
                rule = self._rule if is_trained else self._on_statistics
                weight = rule.apply(w[..., part], update.part(part))
                self._weight = weight if is_trained else self._weight
        return self._weight

    def _next(self, begin: int, size: int) -> Update:
        return self._reader.read(begin, size)

    @property
    def refused(self) -> Refused | None:
        if self._unfit is not None:
            return self._unfit
        if self._reader.is_changed:
            return Refused(Refusal.UNREADABLE, "the file changed while it was being read")
        try:
            if self._judge is not None:
                self._judge(self.norm)
        except Refused as refused:
            return refused
        return None

    def close(self) -> None:
        self._opened.close()


class MeasuredUpload(StreamedUpload):
    """Applies an upload in a second pass, after all of it was measured, and limits its change of the weights."""

    needs_first_pass = True

    def __init__(
        self,
        reader: BlockReader,
        settings: FoldSettings,
        judge: Judge | None,
        opened: ExitStack,
        measurement: Measurement,
    ) -> None:
        super().__init__(reader, settings, judge, opened)
        self._measurement = measurement

    def first_pass(self, w: Vector, begin: int) -> None:
        if self._unfit is not None:
            return
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self._measurement.add(w, self._reader.look(begin, w.shape[-1]), begin)
        except Refused as refused:
            self._unfit = refused

    def first_pass_done(self, tail: Vector) -> None:
        if self._unfit is None:
            self._unfit = self._measurement.judge(tail)
            self.cosine, self.reference_cosine = self._measurement.cosine, self._measurement.reference_cosine

    def _next(self, begin: int, size: int) -> Update:
        update = super()._next(begin, size)
        with np.errstate(over="ignore", invalid="ignore"):
            self._measurement.hold(update.weights, update.started_from, begin)
        return update


def open_fold(
    path: Path,
    base: Path | None,
    settings: FoldSettings,
    facts: UploadFacts,
    *,
    judge: Judge | None,
    buffers: BufferPool | None = None,
    sums: bool = False,
) -> StreamedUpload:
    """Open an upload, and return the change that applies it; close the change afterwards.

    Args:
        path: The file.
        base: The snapshot of the version that the client started from. It is opened only if measuring, the rule or the
            codec needs it.
        settings: The settings of the run.
        facts: The facts about the upload.
        judge: Checks the norm of the upload, and raises Refused; None for an upload that was applied before.
        buffers: A pool from which buffers are reused; None for a new one.
        sums: Whether to compute the checksum of its weights.

    Raises:
        Refused: The upload cannot be read.
        FileUnavailable: This machine cannot read an existing file, or its base does not exist yet.
    """
    layout, up = settings.layout, up_encoding(settings.transport, settings.layout)
    facts = replace(facts, fraction=settings.counted_fraction(facts.fraction))
    buffers = BufferPool() if buffers is None else buffers
    with ExitStack() as opened:
        measurement = settings.measuring(facts, opened)
        needs_base = settings.rule.needs_base or up.is_difference or measurement is not None
        upload = opened.enter_context(open_upload(path, up, base if needs_base else None))
        two_passes = WholeReader if layout.size <= KEPT_NUMBERS else TwiceReader
        kind = BlockReader if measurement is None else two_passes
        reader = kind(upload, layout, facts, buffers)
        reader.sum = Checksum() if sums else None
        opened.callback(reader.close)
        closing = opened.pop_all()
    if measurement is None:
        return StreamedUpload(reader, settings, judge, closing)
    return MeasuredUpload(reader, settings, judge, closing, measurement)
