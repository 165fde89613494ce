"""The end of a store's weights: put back when its server has lost them, and dropped when the job is over.

Put back are a snapshot, with what the rule keeps beside the weights, and the later updates, folded in again in
their order. What each update was is in the journal. Its upload is kept until an epoch's snapshot covers it,
with the weights that its client started from where the rule needs them. So nothing that was assimilated is
lost, and the weights are the same to the last bit. What an eventual store had overwritten since the snapshot is
in them again. They are put there in one step: nobody ever folds into weights that are half restored.
"""

from collections.abc import Collection
from contextlib import closing, suppress

from vcdl.errors import StoreError, StoreLost, WeightsFileError, for_shell
from vcdl.errors.refusal import Refused
from vcdl.journal.events import StopDecided, StopReason, StoreRestored, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.journal.lineage import Lineage
from vcdl.loop.streamed_upload import FoldSettings, opened_fold
from vcdl.run.folder import RestoreLock, RunFolder
from vcdl.run.kept_weights import Snapshots
from vcdl.run.run import Run
from vcdl.stores import Applied, WeightStore
from vcdl.stores.base import restored_record
from vcdl.stores.change import InMemory, fold_changes
from vcdl.trust.contract import UploadFacts
from vcdl.trust.strangers import refolded
from vcdl.wire.weights import Vector, read_weights
from vcdl.wire.workunit import WorkunitName


def restore_store(run: Run, store: WeightStore, journal: Journal) -> int:
    """Restore a store that is behind its journal, or forgot everything. Returns how many updates were folded again.

    Any number of servers may do it at once: the first one does, and the others find it done. Raises StoreError
    when a kept upload that is needed is gone, StoreUnavailable when the server is away again, RunFolderError.
    """
    with RestoreLock(run.folder).restoring():
        return make_newest(run, store, journal)


def make_newest(run: Run, store: WeightStore, journal: Journal) -> int:
    """`restore_store` for a caller that holds the RestoreLock.

    No number is given twice: under one above the newest version a snapshot may have updates that have no row, and
    clients may have begun with it. So the restored weights get a number above all.
    """
    lineage = Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))
    version = unused_version(run.folder, lineage)
    least = version - 1 if run.folder.kept_uploads.is_dir() else lineage.version
    records = [_record(update) for update in lineage.recorded]

    def are_all(newest: int, known: Collection[Applied]) -> bool:
        later = range(lineage.base_of(newest) + 1, newest + 1)
        return newest >= least and {*later} <= {record.version for record in known}

    if whole_unless_behind(store, least) is not None or store.regain(records, are_all):
        return 0
    begin, whole = _made_again(run, lineage)
    later, lost = lineage.after(begin), lineage.bases[lineage.base_of(begin)]
    if lineage.ends_with_recovery and version == lineage.version + 1:
        version = lineage.version  # its process was killed, and nothing else came from it
        # What a rollback made is kept before anybody can change it, as at a boundary.
        run.snapshots(store).keep_whole(version, whole)
    journal.append(StoreRestored(version, len(later), lineage.without_row(begin), lost))
    store.restore(version, whole, [*records, restored_record(version)], lost)
    return len(later)


def unused_version(folder: RunFolder, lineage: Lineage) -> int:
    """Return a number above those of all versions in the journal or in files. Raises RunFolderError."""
    return max([lineage.version, *folder.snapshot_versions()]) + 1


def whole_unless_behind(store: WeightStore, version: int = 0) -> Vector | None:
    """Return a store's whole vector, or None if it lost what the journal knows. Raises StoreError.

    It is None, too, for a store that is before `version`.
    """
    try:
        newest, whole = store.read_whole()  # all of it: a chunk may be gone while the version is there
    except StoreLost:
        return None
    return whole if newest >= version else None


def drop_weights(store: WeightStore, snapshots: Snapshots, stopped: StopDecided) -> None:
    """Leave nothing in the store of a job that is over, unless `vcdl resume` would try it again."""
    if stopped.reason != StopReason.SUBTASK_FAILED and snapshots.has(stopped.version):
        with suppress(StoreError):  # a server that is away keeps them: that costs it room, and no run a result
            store.drop()


def _made_again(run: Run, lineage: Lineage) -> tuple[int, Vector]:
    """Return the snapshot to start from, and the store's whole vector with the later updates applied."""
    damage = ""
    for version in _candidates(run.folder, lineage):
        try:
            whole = whole_of(version, run)
            for update in lineage.after(version):
                fold_again(run, update, whole)
        except (WeightsFileError, StoreError) as error:  # half of it reached the disk before the power went
            damage = damage or str(error)
            continue
        return version, whole
    raise StoreError(
        f"the store has lost its weights, and they cannot be rebuilt ({damage or 'no snapshot is left'}): "
        f"{_begin_again(run.folder)}"
    )


def _candidates(folder: RunFolder, lineage: Lineage) -> list[int]:
    """Return the snapshots from which the journal continues, the best first.

    These are the lineage's bases, if the later uploads are kept. The others are a last resort: an update without a row
    will be uploaded again, and counts twice.
    """

    def rank(version: int) -> tuple[bool, int, int]:
        is_exact = version in lineage.bases and _is_enough(version, folder, lineage)
        return is_exact, -lineage.without_row(version), version

    return sorted(filter(lineage.leads_on, folder.snapshot_versions()), key=rank, reverse=True)


def whole_of(version: int, run: Run) -> Vector:
    """Return a snapshot as the store had it.

    Raises WeightsFileError, also when the state of that version was not kept.
    """
    folder, layout, state = run.folder, run.layout, run.state
    whole = state.begun(read_weights(folder.snapshot(version), layout.size)[0])
    beside = state.beside(whole)
    if version > 0 and beside.size:
        if not folder.state_snapshot(version).exists():
            raise WeightsFileError(f"the rule's state of version {version} was not kept")
        read_weights(folder.state_snapshot(version), beside.size, beside)
    return whole


def _is_enough(version: int, folder: RunFolder, lineage: Lineage) -> bool:
    """Return whether the uploads of everything after `version` are kept."""
    return all(folder.kept_upload(update.version, update.workunit).exists() for update in lineage.after(version))


def _record(update: UpdateApplied) -> Applied:
    subtask = WorkunitName.parse(update.workunit).subtask
    return Applied(subtask, update.workunit, update.version, update.staleness, update.weight, update.trust)


def fold_again(run: Run, update: UpdateApplied, whole: Vector) -> None:
    """Fold a kept upload into a store's whole vector, as it was folded in before. Raises StoreError."""
    folder, epoch = run.folder, WorkunitName.parse(update.workunit).epoch
    facts = UploadFacts(
        epoch=epoch,
        staleness=update.staleness,
        samples=update.samples,
        fraction=update.fraction,
        base_version=update.base_version,
        updates=run.job.subtasks,
        trust=update.trust,
        rate=update.rate,
    )
    path, base = folder.kept_upload(update.version, update.workunit), folder.snapshot(update.base_version)
    settings, sums = FoldSettings.of(run, refolded(run)), bool(update.checksum)
    wrong: object = None
    try:
        with closing(opened_fold(path, base, settings, facts, judge=None, sums=sums)) as fold:
            fold_changes([fold], InMemory(whole, run.state), run.state)
            wrong = fold.refused
            if wrong is None and fold.checksum != update.checksum:
                wrong = f"{path.name} is damaged: its weights are not those that were folded in"
    except Refused as refused:
        wrong = refused
    if wrong is not None:
        raise StoreError(f"version {update.version} needs an upload in {folder.kept_uploads}: {wrong}")


def _begin_again(folder: RunFolder) -> str:
    return (
        f"put a copy of it back. Without one, `vcdl export {for_shell(folder.path)} -o model.keras` writes the "
        "newest weights in "
        f"{folder.snapshots}, and `vcdl run {for_shell(folder.job_file)} --out DIR` begins the job again"
    )
