"""The parameter server: every upload that has come is checked and folded into the shared weights at once.

One result walks grid → check → store → journal → done. Killed between any two of them, the result is claimed again; the store
knows that it has it, and the journal row that is missing is written from the store's record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vcdl.checks import Refused, UploadCheck
from vcdl.coordinator import EVERY_EPOCH, is_validated
from vcdl.events import Event, UpdateApplied, UpdateRefused, UpdateSuperseded, WorkunitFailed
from vcdl.grids.base import GaveUp, Grid, Uploaded
from vcdl.journal import Journal
from vcdl.rules import Rule, Update
from vcdl.stores import Applied, Fold, WeightStore
from vcdl.weights import Vector
from vcdl.workunit import UpdateHeader, WorkunitName

_FOLDED_AT_ONCE = 8
"""Uploads held in memory at a time, beside the store's two vectors."""


@dataclass(frozen=True)
class _Checked:
    uploaded: Uploaded
    name: WorkunitName
    header: UpdateHeader
    weights: Vector


@dataclass(frozen=True)
class Assimilator:
    """Folds the uploads of one job; `keep_snapshot` is called when the newest version must be evaluated as it is."""

    grid: Grid
    store: WeightStore
    journal: Journal
    check: UploadCheck
    rule: Rule
    validate_every: int
    keep_snapshot: Callable[[], object]

    def run_once(self) -> int:
        """Assimilate everything that waits; returns how many results came to an end."""
        outcomes = self.grid.claim()
        for failed in [outcome for outcome in outcomes if isinstance(outcome, GaveUp)]:
            self._conclude(failed.workunit, WorkunitFailed(failed.workunit, failed.reason))
        uploads = [outcome for outcome in outcomes if isinstance(outcome, Uploaded)]
        while uploads:
            batch, uploads = self._cut_batch(uploads)
            checked = [result for upload in batch if (result := self._read(upload)) is not None]
            self._fold(checked)
        return len(outcomes)

    def _cut_batch(self, uploads: list[Uploaded]) -> tuple[list[Uploaded], list[Uploaded]]:
        """As many as are folded between one read and one write; a version to be evaluated ends a batch."""
        size = _FOLDED_AT_ONCE
        if self.validate_every != EVERY_EPOCH:
            size = min(size, self.validate_every - self.store.version() % self.validate_every)
        return uploads[:size], uploads[size:]

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
        if not batch:
            return
        folds = [
            Fold(item.name.subtask, item.uploaded.workunit, item.name.base_version, partial(self._apply, item))
            for item in batch
        ]
        records = self.store.fold(folds)
        newest = max(record.version for record in records)
        if is_validated(self.validate_every, newest):
            self.keep_snapshot()
        for item, record in zip(batch, records, strict=True):
            self._conclude(item.uploaded.workunit, _event(item, record))

    def _apply(self, item: _Checked, server: Vector, staleness: int) -> float:
        header = item.header
        update = Update(item.weights, item.name.epoch, staleness, header.samples, header.fraction)
        return self.rule.apply(server, update)

    def _conclude(self, workunit: str, event: Event) -> None:
        self.journal.append(event)
        self.grid.done(workunit)


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
