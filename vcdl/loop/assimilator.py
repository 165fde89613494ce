"""The assimilator checks each upload that has arrived and folds it into the shared weights.

A result passes from the grid through the checks and the store to the journal, and only then is it marked as done. If
the server is killed between two of these steps, the result is claimed again. The store then reports that it has already
applied the subtask, whatever the checks would decide now, and the missing journal row is written from the store's
record.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from msgspec import structs

from vcdl.checks.claims import LOSSES_KEPT, ClaimCheck, believed_times_s, believed_train_s
from vcdl.errors import printable
from vcdl.errors.refusal import Blame, Refusal, Refused
from vcdl.journal.events import (
    Event,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.journal import Journal
from vcdl.loop.grid import GaveUp, Results
from vcdl.loop.pending_upload import BelievedClaims, PendingUpload, applied_event
from vcdl.loop.streamed_upload import BufferPool, FoldSettings, open_fold
from vcdl.run.folder import RestoreLock
from vcdl.run.kept_weights import Snapshots, keep_upload
from vcdl.run.run import Run
from vcdl.run.staging import Uploaded
from vcdl.stores import Applied, Change, Fold, Unfit, WeightStore
from vcdl.stores.change import RefusedChange
from vcdl.trust.contract import Admission, UploadFacts
from vcdl.trust.strangers import trust_of
from vcdl.wire.workunit import UpdateHeader, WorkunitName

_SUSPICIOUS_WEIGHT = 0.02
"""Factor on the weight of a suspicious upload: small enough that it counts less than any other, and above zero so that
it gets a record."""
_SENT_ROW_WITHIN_S = 60.0
"""Seconds after an upload's arrival in which its `workunit_sent` row may still be missing: the work generator writes
these rows once a step. After that time the upload is judged without knowing its host, so that it is not held up
forever."""
_FOLDED_AT_ONCE = 8  # a larger batch costs a longer second try
"""Uploads folded between one read and one write of the shared weights: each further upload saves a pass over W, but
costs another try if the server dies, because the whole batch is then claimed again."""


class Assimilator:
    """Checks and applies the uploads of one run, and keeps a snapshot of each version that must be evaluated.

    Each upload is handled in this order: claim, check, store, journal row, `Results.done`. After a kill between two
    steps it is claimed again, and the store applies no subtask twice.
    """

    def __init__(self, run: Run, journal: Journal, store: WeightStore, snapshots: Snapshots, results: Results) -> None:
        self.check = run.upload_check(journal)
        self._run = run
        self._journal = journal
        self._store = store
        self._results = results
        self._boundary = run.boundary(snapshots)
        self._restore_lock = RestoreLock(run.folder)
        self._trust = trust_of(run, journal)
        self._buffers, self._settings = BufferPool(), FoldSettings.of(run, self._trust.measurement)
        self._claims = ClaimCheck.of(_losses_of(journal))
        self._machines: dict[str, str] = {}
        """Host → the machine description that it last sent. The journal gets it once and not with each upload."""

    def run_once(self) -> int:
        """Assimilate every waiting upload, and return how many results were finished.

        An error neither loses an upload nor applies one twice: call again once its cause is fixed.

        Raises:
            StoreUnavailable, FileUnavailable: A service or file cannot be reached now.
            StoreLost: The store lost the weights.
            StoreError, JournalError: The store or the journal refused the operation.
        """
        # Claimed results come first, in the order of arrival. The server's own updates are in no grid, so there is no
        # claim for them: they are found in their folder.
        outcomes = [*self._results.claim(), *self._own_uploads()]
        if outcomes:
            # What a host may upload depends on its earlier rows, including those that other servers have written since.
            # An idle server skips the query.
            self._trust.catch_up()
        given_up = [outcome for outcome in outcomes if isinstance(outcome, GaveUp)]
        for lost in given_up:
            cancelled, failed = WorkunitCancelled(lost.workunit), WorkunitFailed(lost.workunit, lost.reason)
            self._conclude(lost.workunit, cancelled if lost.cancelled else failed)
        # An early upload is not marked as done, so the grid offers it again with the next call.
        uploads = [one for one in outcomes if isinstance(one, Uploaded) and not self._is_early(one)]
        for batch in self._batches(uploads):
            self._fold([waiting for upload in batch if (waiting := self._inspect(upload)) is not None])
        return len(given_up) + len(uploads)

    def _batches(self, uploads: Sequence[Uploaded]) -> Iterator[Sequence[Uploaded]]:
        """Yield batches of at most _FOLDED_AT_ONCE uploads with different trust keys (`Trust.key_of`).

        Apply each batch before asking for the next: its journal rows decide which of the next uploads are admitted.
        """
        while uploads:
            batch: dict[str, Uploaded] = {}
            later = []
            for upload in uploads:
                is_full = len(batch) == _FOLDED_AT_ONCE
                # Two uploads of one untrusted host are not checked together: whether the second is admitted depends on
                # the outcome of the first. If hosts are trusted, every upload has its own key.
                if is_full or batch.setdefault(self._trust.key_of(upload), upload) is not upload:
                    later.append(upload)
            yield list(batch.values())
            # The rows of this batch are written by now, and they decide which uploads of the next batch are admitted.
            self._trust.catch_up()
            uploads = later

    def _is_early(self, upload: Uploaded) -> bool:
        """Return whether to judge an upload later, because the row that names its host may still be missing."""
        came_s = upload.received_s
        if came_s is None or self._trust.key_of(upload) or time.time() - came_s >= _SENT_ROW_WITHIN_S:
            return False
        # A workunit that the journal never announced will not get a `workunit_sent` row either, so do not wait for one.
        return self._journal.find(WorkunitCreated.key_of(upload.workunit)) is not None

    def _own_uploads(self) -> Iterable[Uploaded]:
        """Yield the updates that the server trained itself.

        Two servers may yield the same update. The store applies its subtask once.
        """
        # Skip names with a leading dot: the evaluator is still writing these files (vcdl.files.atomic).
        for path in self._run.folder.own_uploads.glob("[!.]*.h5"):
            with suppress(FileNotFoundError):  # another server has just folded it in
                yield Uploaded(path.stem, path, path.stat().st_size)

    def _inspect(self, upload: Uploaded) -> PendingUpload | None:
        """Check an upload's header and decide how much it counts, before its weights are read.

        Returns:
            None if the header is invalid; the refusal is then recorded. An upload that is refused because of its host
            is returned, because the store may have applied it already.
        """
        try:
            header = self.check.read_header(upload.path, upload.workunit)
        except Refused as refused:
            self._refuse(upload, refused)
            return None
        created = self._journal.find(WorkunitCreated.key_of(upload.workunit))
        counted, now_s = self._settings.counted_fraction(header.fraction), self._journal.now_s()
        admission = self._trust.admit(upload, header, counted, created, now_s)
        is_own = upload.path.parent == self._run.folder.own_uploads
        # The server trusts its own training, whatever the quota of the host that the workunit is named after.
        if is_own:
            admission = replace(admission, weight=1.0, refused=None)
        return PendingUpload(
            uploaded=replace(upload, host=admission.host),
            # A client may start from newer weights than its workunit names (decision 038). Staleness, base and
            # rollbacks follow the version that it used.
            name=replace(WorkunitName.parse(upload.workunit), base_version=header.base_version),
            header=header,
            admission=admission,
            believed=self._check_claims(header, admission, None if created is None else now_s - created.time_s),
            is_doubted=is_own,  # no measurement can contradict what the server trained itself
        )

    def _check_claims(self, header: UpdateHeader, admission: Admission, age_s: float | None) -> BelievedClaims:
        """Return a header's claims about the training, each None or empty if it is impossible.

        `age_s` is the time since its workunit was created, in seconds; None if unknown.
        """
        train_s = believed_train_s(header.train_s, age_s, admission.usual_train_s)
        return BelievedClaims(train_s, believed_times_s(header.times_s, train_s, age_s), self._claims.loss(header.loss))

    def _fold(self, batch: list[PendingUpload]) -> None:
        """Apply a batch of uploads, or refuse or drop them, until none is left. Takes the restore lock each time."""
        while batch:
            # The lock is held until the rows are written: a restore in between would lose an update that the journal
            # then lists. With a `strong` store a server holds it exclusively, so that the journal has every earlier
            # fold when the store is compared with it (decision 029). After a refusal the rest of the batch comes back
            # here.
            with self._restore_lock.folding(shared=self._store.overwrites):
                done = self._drop_overtaken(batch) or self._fold_some(batch)
            batch = [item for item in batch if item.uploaded.workunit not in done]

    def _drop_overtaken(self, batch: list[PendingUpload]) -> Collection[str]:
        """Record uploads that started from weights with a dropped update as superseded; return their workunits."""
        # Read them inside the lock: a rollback that is recorded later waits for these rows.
        rollbacks = self._trust.rollbacks()
        overtaken = [item for item in batch if any(rolled.overtakes(item.name.base_version) for rolled in rollbacks)]
        for item in overtaken:
            self._conclude(item.uploaded.workunit, *self._supersede(item))
        return {item.uploaded.workunit for item in overtaken}

    def _supersede(self, item: PendingUpload) -> Iterable[Event]:
        """Yield the row of an overtaken upload.

        There is none if its server was killed after writing a row, before the job was rolled back. The rollback has
        cancelled the workunits of the versions that it undoes. A workunit of an older version whose subtask started
        with such a version is cancelled here.
        """
        uploaded = item.uploaded
        rows = [row.event for row in self._journal.events_with_key_prefix(UpdateApplied.key_of(item.name.subtask))]
        if not any(isinstance(row, UpdateApplied) and row.workunit == uploaded.workunit for row in rows):
            if WorkunitName.parse(uploaded.workunit).base_version != item.name.base_version:
                yield WorkunitCancelled(uploaded.workunit)
            yield UpdateSuperseded(uploaded.workunit, uploaded.size_bytes, uploaded.host)

    def _fold_some(self, batch: list[PendingUpload]) -> Collection[str]:
        """Apply a batch up to the next version that must be evaluated, or refuse some of its uploads.

        Returns:
            The workunits that are finished and recorded. Call again with the others.
        """
        begun_s = self._journal.now_s()
        try:
            records = self._store.fold([self._as_fold(item) for item in batch], self._boundary)
        except Unfit as unfit:
            return self._refuse_or_doubt(batch, unfit.refused)
        # The store stops at a boundary, so there may be fewer records than uploads. `_fold` passes the remaining
        # uploads again.
        took_s = (ended_s := self._journal.now_s()) - begun_s
        for item, record in zip(batch, records, strict=False):
            item.fold_s, item.ended_s = took_s / len(records), ended_s
            # Only an upload that was read now and has full weight is a sample of usual norms (decision 060). One that
            # got a reduced weight might be hostile, and would widen the limits for the next upload.
            if item.streamed is not None and record.workunit == item.uploaded.workunit and record.trust == 1.0:
                self.check.accept(item.streamed.norm)
                self._claims.accept(item.header.loss)
                self._trust.accept(item.streamed.cosine, item.streamed.reference_cosine)
            version = record.version if record.workunit == item.uploaded.workunit else None
            if version is not None:  # kept before the row that promises it for a restore
                is_new = item.streamed is not None
                keep_upload(self._run.folder, item.uploaded.path, item.uploaded.workunit, version, replace=is_new)
            self._conclude(item.uploaded.workunit, *self._events(item, record), version=version)
        return {item.uploaded.workunit for item in batch[: len(records)]}

    def _refuse_or_doubt(self, batch: Sequence[PendingUpload], refused: Mapping[str, Refused]) -> Collection[str]:
        """Record the refusal of uploads, or reduce the weight of suspicious ones in place for the next try.

        Args:
            batch: The uploads that were to be applied together; the store has applied none.
            refused: Workunit → the reason of its refusal.

        Returns:
            The refused workunits.
        """
        done = []
        for item in batch:
            why = refused.get(item.uploaded.workunit)
            if why is None:
                continue
            # The batch keeps an upload without a reason: the store changed nothing, and `_fold` folds it again.
            is_strange = why.refusal.blame is Blame.CONTENT  # a suspicious upload is not examined again
            # If every attempt at a strange shard were refused, its epoch would never end (decision 025).
            if is_strange and self._trust.may_be_doubted(item.uploaded.host, item.name.attempt_in_turn):
                item.is_doubted = True
                item.admission = replace(item.admission, weight=item.admission.weight * _SUSPICIOUS_WEIGHT)
            else:
                self._refuse(item.uploaded, why)
                done.append(item.uploaded.workunit)
        return done

    def _as_fold(self, item: PendingUpload) -> Fold:
        """Return the order to the store to apply an upload, which opens the upload only when it is needed."""
        # None also marks a subtask that the store had already applied: then `begin` is never called and nothing is
        # read.
        item.streamed, begin = None, partial(self._begin, item)
        weight = item.admission.weight
        return Fold(item.name.subtask, item.uploaded.workunit, item.name.base_version, begin, weight)

    def _begin(self, item: PendingUpload, staleness: int) -> Change:
        """Open an upload to be applied now, or return a change that refuses it.

        The store calls this if it has not applied the subtask yet. `staleness` is negative if the upload's base version
        is above the store's.
        """
        name, header = item.name, item.header
        # Refused only now and not in `_inspect`: an upload that was folded before its server died must get its row,
        # even if its host was banned since.
        if item.admission.refused is not None:
            return RefusedChange(item.admission.refused)
        # The store or the run's folder was replaced by an older copy, and this client started from a version that is
        # lost.
        if staleness < 0:
            why = f"starts from version {name.base_version}, which was lost when older weights were restored"
            return RefusedChange(Refused(Refusal.WRONG_BASE, why))
        facts = UploadFacts(
            epoch=name.epoch,
            staleness=staleness,
            samples=header.samples,
            fraction=header.fraction,
            base_version=name.base_version,
            updates=self._run.job.subtasks,
            trust=item.admission.weight,
            is_doubted=item.is_doubted,
            rate=item.admission.rate,
        )
        folder = self._run.folder
        path, base = item.uploaded.path, folder.snapshot(name.base_version)
        try:
            item.streamed = open_fold(
                path,
                base,
                self._settings,
                facts,
                judge=self.check.judge,
                buffers=self._buffers,
                # Only a kept upload is ever compared with its checksum again. Other runs skip this pass.
                sums=folder.kept_uploads.is_dir(),
            )
        except Refused as refused:
            return RefusedChange(refused)
        return item.streamed

    def _refuse(self, upload: Uploaded, refused: Refused) -> None:
        """Record a refusal, and mark the upload as done."""
        # The detail may quote what a hostile client sent. A row stays short, however long it was.
        reason, detail = refused.refusal.value, refused.detail[:500]
        host = self._trust.host_of(upload)
        self._conclude(upload.workunit, UpdateRefused(upload.workunit, reason, detail, upload.size_bytes, host))

    def _conclude(self, workunit: str, *events: Event, version: int | None = None) -> None:
        """Record an outcome's events, then mark it as done and delete its upload."""
        # The order of decision 004: the grid keeps a result until the journal has it. After a kill before `done` it is
        # claimed again, and its row is found by key. The server's own upload is deleted last for the same reason.
        self._journal.append(*events)
        self._results.done(workunit, version)
        self._run.folder.own_upload(workunit).unlink(missing_ok=True)

    def _events(self, item: PendingUpload, record: Applied) -> Iterable[Event]:
        """Yield the journal rows of an upload, from the store's record."""
        applied, host = applied_event(item, record), item.uploaded.host
        if record.workunit == item.uploaded.workunit:
            # The client sends this text: remove control characters, because a terminal will show it.
            if self._machines.get(host) != item.header.machine:
                self._machines[host] = item.header.machine
                applied = structs.replace(applied, machine=printable(item.header.machine))
            yield applied
            return
        # Another attempt was applied first. If its server died before writing the row, the store's record is the best
        # source there is; an existing row stays as it is.
        base_version = record.version - 1 - record.staleness
        yield structs.replace(applied, workunit=record.workunit, base_version=base_version, host="")
        yield UpdateSuperseded(item.uploaded.workunit, item.uploaded.size_bytes, host)


def _losses_of(journal: Journal) -> list[float]:
    """Return the losses of the last applied uploads, oldest first.

    Raises:
        JournalError: The journal cannot be read.
    """
    # Only the newest rows: a server that starts late in a long job must not read all of them.
    rows = [row.event for row in journal.newest(UpdateApplied.kind, LOSSES_KEPT)]
    return [row.loss for row in reversed(rows) if isinstance(row, UpdateApplied) and row.loss is not None]
