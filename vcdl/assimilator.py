"""The parameter server: every upload that has come is checked and folded into the shared weights at once.

One result walks grid → check → store → journal → done. Killed between any two of them, the result is claimed again; the store
knows that it has it, whatever the checks would say now, and the journal row that is missing is written from the store's record.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from vcdl.checks import Refused, UploadCheck
from vcdl.events import Event, UpdateApplied, UpdateRefused, UpdateSuperseded, WorkunitCancelled, WorkunitFailed
from vcdl.grids.base import GaveUp, Results, Uploaded
from vcdl.journal import Journal
from vcdl.rules import Rule
from vcdl.stores import Applied, Boundary, Fold, Unfit, WeightStore
from vcdl.streamed_upload import StreamedUpload, UploadFacts
from vcdl.workunit import UpdateHeader, WorkunitName

_FOLDED_AT_ONCE = 8
"""Uploads between one read and one write of the shared weights."""


@dataclass
class _Waiting:
    """An upload whose header is right; its weights are looked at while they are folded in."""

    uploaded: Uploaded
    name: WorkunitName
    header: UpdateHeader
    streamed: StreamedUpload | None = field(default=None, repr=False)
    """As it was folded in last; None: the store had it already."""


@dataclass(frozen=True)
class Assimilator:
    """Folds the uploads of one job; at a `boundary` the version is kept, to be evaluated as it is."""

    results: Results
    store: WeightStore
    journal: Journal
    check: UploadCheck
    rule: Rule
    boundary: Boundary | None
    snapshot: Callable[[int], Path]
    """The weights file of a version that clients started from."""
    folding: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered before a fold and left when journal and results have it: see vcdl.run.restore_lock."""
    keep: Callable[[Path, str, int], None] | None = None
    """(upload, workunit, version) → it is kept for a store that may lose its memory: before its row says that it can be folded again."""
    held_out: Path | None = None
    """The step of held-out data, for a rule that asks for it."""

    def run_once(self) -> int:
        """Assimilate everything that waits; returns how many results came to an end.

        Raises StoreUnavailable, StoreLost, StoreError, JournalError: call again when it is mended, nothing is lost or done twice.
        """
        outcomes = self.results.claim()
        for lost in [outcome for outcome in outcomes if isinstance(outcome, GaveUp)]:
            cancelled, failed = WorkunitCancelled(lost.workunit), WorkunitFailed(lost.workunit, lost.reason)
            self._conclude(lost.workunit, cancelled if lost.cancelled else failed)
        uploads = [outcome for outcome in outcomes if isinstance(outcome, Uploaded)]
        for begin in range(0, len(uploads), _FOLDED_AT_ONCE):
            batch = uploads[begin : begin + _FOLDED_AT_ONCE]
            self._fold([waiting for upload in batch if (waiting := self._looked_at(upload)) is not None])
        return len(outcomes)

    def _looked_at(self, upload: Uploaded) -> _Waiting | None:
        try:
            header = self.check.read_header(upload.path, upload.workunit)
        except Refused as refused:
            self._refuse(upload, refused)
            return None
        return _Waiting(upload, WorkunitName.parse(upload.workunit), header)

    def _fold(self, batch: list[_Waiting]) -> None:
        while batch:
            with self.folding():
                done = self._fold_some(batch)
            batch = [item for item in batch if item.uploaded.workunit not in done]

    def _fold_some(self, batch: list[_Waiting]) -> Collection[str]:
        """Fold a batch up to a boundary, or find out which of it are refused; returns what came to an end."""
        try:
            records = self.store.fold([self._as_fold(item) for item in batch], self.boundary)
        except Unfit as unfit:
            for item in batch:
                if item.uploaded.workunit in unfit.refused:
                    self._refuse(item.uploaded, unfit.refused[item.uploaded.workunit])
            return unfit.refused
        for item, record in zip(batch, records, strict=False):
            if item.streamed is not None and record.workunit == item.uploaded.workunit:
                self.check.accept(item.streamed.norm)
            version = record.version if record.workunit == item.uploaded.workunit else None
            if version is not None and self.keep is not None:
                self.keep(item.uploaded.path, item.uploaded.workunit, version)
            self._conclude(item.uploaded.workunit, *_events(item, record), version=version)
        return {item.uploaded.workunit for item in batch[: len(records)]}

    def _as_fold(self, item: _Waiting) -> Fold:
        item.streamed = None
        return Fold(item.name.subtask, item.uploaded.workunit, item.name.base_version, partial(self._begin, item))

    def _begin(self, item: _Waiting, staleness: int) -> StreamedUpload:
        name, header = item.name, item.header
        facts = UploadFacts(name.epoch, staleness, header.samples, header.fraction, name.base_version, name.attempt)
        base = self.snapshot(name.base_version)
        path, check = item.uploaded.path, self.check
        item.streamed = StreamedUpload(
            path, check.layout, self.rule, facts, check, base, self.held_out, transport=check.transport
        )
        return item.streamed

    def _refuse(self, upload: Uploaded, refused: Refused) -> None:
        reason, detail = refused.refusal.value, refused.detail[:500]
        self._conclude(upload.workunit, UpdateRefused(upload.workunit, reason, detail, upload.size_bytes))

    def _conclude(self, workunit: str, *events: Event, version: int | None = None) -> None:
        self.journal.append(*events)
        self.results.done(workunit, version)


def _events(item: _Waiting, record: Applied) -> Iterable[Event]:
    """What the journal must have of an upload, from the store's record."""
    applied = _applied(item, record)
    if record.workunit == item.uploaded.workunit:
        yield applied
        return
    # Another attempt was first. Should its server have died before its row was written, this is as near as anybody comes to it;
    # a row that is there stays as it is.
    yield replace(applied, workunit=record.workunit, base_version=WorkunitName.parse(record.workunit).base_version)
    yield UpdateSuperseded(item.uploaded.workunit, item.uploaded.size_bytes)


def _applied(item: _Waiting, record: Applied) -> UpdateApplied:
    header = item.header
    return UpdateApplied(
        workunit=item.uploaded.workunit,
        version=record.version,
        base_version=item.name.base_version,
        staleness=record.staleness,
        weight=record.weight,
        samples=header.samples,
        fraction=header.fraction,
        train_s=header.train_s,
        loss=header.loss,
        bytes_up=item.uploaded.size_bytes,
    )
