"""The end of a store's weights: put back when its server has lost them, and dropped when the job is over.

Put back are the newest snapshot, then the later updates again, in their order.

What each update was is in the journal, and its upload is kept until an epoch's snapshot covers it, so nothing that was assimilated is
lost; the weights are the same to the last bit when the updates are folded in the same order.
"""

from collections.abc import Iterable
from contextlib import suppress

from vcdl.coordinator import StopReason
from vcdl.errors import StoreError, WeightsFileError
from vcdl.events import Recorded, RunReopened, StopDecided, UpdateApplied
from vcdl.journal import Journal
from vcdl.rules import Rule
from vcdl.run_folder import RunFolder
from vcdl.snapshots import Snapshots
from vcdl.stores import Applied, Fold, Unfit, WeightStore
from vcdl.streamed_upload import StreamedUpload, UploadFacts
from vcdl.weights import Layout, Vector, read_weights
from vcdl.workunit import WorkunitName


def restore_store(store: WeightStore, journal: Journal, folder: RunFolder, rule: Rule, layout: Layout) -> int:
    """Restore a store that raised StoreLost. Returns how many updates were folded again.

    Any number of servers may do it at once: one snapshot stands, and each update is folded once. Raises StoreError when a kept
    upload that is needed is gone, StoreUnavailable when the server is away again.
    """
    applied = sorted(
        (row.event for row in journal.read() if isinstance(row.event, UpdateApplied)), key=lambda update: update.version
    )
    version, vector = _newest_snapshot(folder, layout.size)
    store.restore(version, vector, [_record(update) for update in applied if update.version <= version])
    later = [update for update in applied if update.version > version]
    for update in later:
        try:
            store.fold([_fold(update, folder, rule, layout)])
        except Unfit as unfit:
            raise StoreError(
                f"the store has lost its weights, and the upload that made version {update.version} is not in "
                f"{folder.kept_uploads} any more ({unfit}): the run must be begun anew"
            ) from unfit
    return len(later)


def drop_weights(store: WeightStore, snapshots: Snapshots, stopped: StopDecided) -> None:
    """Leave nothing in the store of a job that is over; its last version is a snapshot. A job that `vcdl resume` tries again keeps it."""
    if stopped.reason != StopReason.SUBTASK_FAILED and snapshots.has(stopped.version):
        with suppress(StoreError):  # of a server that is away now: that costs it room, and nobody a result
            store.drop()


def is_over(events: Iterable[Recorded]) -> bool:
    """Whether no more updates are wanted, by a journal's events."""
    over = False
    for recorded in events:
        if isinstance(recorded.event, StopDecided | RunReopened):
            over = isinstance(recorded.event, StopDecided)
    return over


def _newest_snapshot(folder: RunFolder, size: int) -> tuple[int, Vector]:
    for path in sorted(folder.snapshots.glob("params_v*.h5"), reverse=True):
        try:
            return int(path.stem.removeprefix("params_v")), read_weights(path, size)[0]
        except WeightsFileError:  # half of it reached the disk before the power went
            continue
    raise StoreError("the store has lost its weights and no snapshot is left: the run must be begun anew")


def _record(update: UpdateApplied) -> Applied:
    subtask = WorkunitName.parse(update.workunit).subtask
    return Applied(subtask, update.workunit, update.version, update.staleness, update.weight)


def _fold(update: UpdateApplied, folder: RunFolder, rule: Rule, layout: Layout) -> Fold:
    name = WorkunitName.parse(update.workunit)
    # The staleness that it had then, not the one that the store counts now.
    facts = UploadFacts(name.epoch, update.staleness, update.samples, update.fraction)
    path = folder.kept_upload(update.version, update.workunit)
    return Fold(
        name.subtask,
        update.workunit,
        update.base_version,
        lambda _: StreamedUpload(path, layout, rule, facts, None),
    )
