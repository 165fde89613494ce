"""The parameter server: every upload that has come is checked and folded into the shared weights at once.

One result walks grid → check → store → journal → done. Killed between any two of them, the result is claimed again; the store
knows that it has it, and the journal row that is missing is written from the store's record.
"""

from dataclasses import dataclass
from functools import partial

from vcdl.checks import Refused, UploadCheck
from vcdl.events import Event, UpdateApplied, UpdateRefused, UpdateSuperseded, WorkunitCancelled, WorkunitFailed
from vcdl.grids.base import GaveUp, Results, Uploaded
from vcdl.journal import Journal
from vcdl.rules import Rule, Update
from vcdl.stores import Applied, Boundary, Fold, WeightStore
from vcdl.weights import Vector
from vcdl.workunit import UpdateHeader, WorkunitName

_FOLDED_AT_ONCE = 8
"""Uploads between one read and one write of the shared weights."""
_HELD_BYTES = 256 << 20
"""Fewer of large ones: so much is held in memory beside the store's vectors, or one upload."""


@dataclass(frozen=True)
class _Checked:
    uploaded: Uploaded
    name: WorkunitName
    header: UpdateHeader
    weights: Vector


@dataclass(frozen=True)
class Assimilator:
    """Folds the uploads of one job; at a `boundary` the version is kept, to be evaluated as it is."""

    results: Results
    store: WeightStore
    journal: Journal
    check: UploadCheck
    rule: Rule
    boundary: Boundary | None

    def run_once(self) -> int:
        """Assimilate everything that waits; returns how many results came to an end.

        Raises StoreUnavailable, StoreLost, StoreError, JournalError: call again when it is mended, nothing is lost or done twice.
        """
        outcomes = self.results.claim()
        for lost in [outcome for outcome in outcomes if isinstance(outcome, GaveUp)]:
            cancelled, failed = WorkunitCancelled(lost.workunit), WorkunitFailed(lost.workunit, lost.reason)
            self._conclude(lost.workunit, cancelled if lost.cancelled else failed)
        uploads = [outcome for outcome in outcomes if isinstance(outcome, Uploaded)]
        size = max(1, min(_FOLDED_AT_ONCE, _HELD_BYTES // (4 * self.check.layout.size or 1)))
        for begin in range(0, len(uploads), size):
            batch = uploads[begin : begin + size]
            self._fold([result for upload in batch if (result := self._read(upload)) is not None])
        return len(outcomes)

    def _read(self, upload: Uploaded) -> _Checked | None:
        try:
            header, weights = self.check.read(upload.path, upload.workunit)
        except Refused as refused:
            self._conclude(
                upload.workunit,
                UpdateRefused(upload.workunit, refused.refusal.value, refused.detail[:500], upload.size_bytes),
            )
            return None
        return _Checked(upload, WorkunitName.parse(upload.workunit), header, weights)

    def _fold(self, batch: list[_Checked]) -> None:
        while batch:
            records = self.store.fold([self._as_fold(item) for item in batch], self.boundary)
            for item, record in zip(batch, records, strict=False):
                event = _event(item, record)
                version = record.version if isinstance(event, UpdateApplied) else None
                self._conclude(item.uploaded.workunit, event, version)
            batch = batch[len(records) :]

    def _as_fold(self, item: _Checked) -> Fold:
        name = item.name
        return Fold(name.subtask, item.uploaded.workunit, name.base_version, partial(self._apply, item))

    def _apply(self, item: _Checked, server: Vector, staleness: int) -> float:
        header = item.header
        update = Update(item.weights, item.name.epoch, staleness, header.samples, header.fraction)
        return self.rule.apply(server, update)

    def _conclude(self, workunit: str, event: Event, version: int | None = None) -> None:
        self.journal.append(event)
        self.results.done(workunit, version)


def _event(item: _Checked, record: Applied) -> Event:
    workunit, header = item.uploaded.workunit, item.header
    if record.workunit != workunit:
        return UpdateSuperseded(workunit, item.uploaded.size_bytes)
    return UpdateApplied(
        workunit=workunit,
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
