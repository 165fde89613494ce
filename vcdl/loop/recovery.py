"""Recovery of a store: restore weights that it has lost, and drop them when the job is over.

A restore starts from a snapshot with the rule's state of the same version, and folds the later updates again in their
order. The journal describes each update. An update's upload is kept until an epoch's snapshot covers it, together with
the weights that its client started from if the rule needs them. So no assimilated update is lost, and the weights are
the same to the last bit. Updates since the snapshot that concurrent writes to an eventual store had overwritten are
part of the restored weights.

Order of steps, all under the RestoreLock: check whether the store needs a restore, build the vector in memory, append
`store_restored`, replace the store's content in one transaction. No server ever folds into weights that are half
restored. A process that is killed before the event has changed nothing. After the event the store is behind its
journal, so the next server restores it and makes the same version.
"""

from collections.abc import Collection
from contextlib import closing, suppress

from vcdl.errors import StoreError, StoreLost, WeightsFileError, for_shell
from vcdl.errors.refusal import Refused
from vcdl.journal.events import StopDecided, StopReason, StoreRestored, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.journal.lineage import Lineage
from vcdl.loop.streamed_upload import FoldSettings, open_fold
from vcdl.run.folder import RestoreLock, RunFolder
from vcdl.run.kept_weights import Snapshots
from vcdl.run.run import Run
from vcdl.stores import Applied, WeightStore
from vcdl.stores.base import restored_record
from vcdl.stores.change import InMemory, fold_changes
from vcdl.trust.contract import UploadFacts
from vcdl.trust.strangers import refolded
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import WorkunitName


def restore_store(run: Run, store: WeightStore, journal: Journal) -> int:
    """Restore a store that is behind its journal or lost its content, and return how many updates were applied again.

    The result is 0 if the store was complete. Takes the RestoreLock, so no upload is applied meanwhile.

    Any number of servers may call this at the same time: the first one restores, and the others find that nothing is
    left to do.

    Raises:
        StoreError: A kept upload that is needed is gone.
        StoreUnavailable: The server cannot be reached again.
        RunFolderError: The run's folder cannot be read.
    """
    # No server may be between a fold and its row while the weights are rebuilt from the rows (vcdl.run.folder).
    with RestoreLock(run.folder).restoring():
        return make_newest(run, store, journal)


def make_newest(run: Run, store: WeightStore, journal: Journal) -> int:
    """Restore a store like `restore_store`, for a caller that already holds the RestoreLock exclusively.

    No version number is given twice (decision 123). A snapshot above the journal's newest version may have updates
    without a row in it, and clients may have started from it. So the restored weights get a number above all of them.
    """
    lineage = Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))
    version = unused_version(run.folder, lineage)
    # Where uploads are kept, a store below the highest snapshot was replaced by an older copy, although no row says so
    # (decision 123). Elsewhere newer weights could not be rebuilt, so it is enough if the store is as new as the
    # journal.
    least = version - 1 if run.folder.kept_uploads.is_dir() else lineage.version
    records = [_record(update) for update in lineage.recorded]

    def are_all(newest: int, known: Collection[Applied]) -> bool:
        # A complete base covers all updates before it. Each version after it needs its own record.
        later = range(lineage.base_of(newest) + 1, newest + 1)
        return newest >= least and {*later} <= {record.version for record in known}

    # A second server finds here that the first one has restored the store, and returns.
    if whole_unless_behind(store, least) is not None or store.regain(records, are_all):
        return 0
    begin, whole = _rebuild_weights(run, lineage)
    later, lost = lineage.after(begin), lineage.bases[lineage.base_of(begin)]
    if lineage.ends_with_recovery and version == lineage.version + 1:
        # Reuse the number of an unfinished recovery: its process was killed, and no version is based on it.
        version = lineage.version
        # Keep the version that a rollback created before any server can change it, as is done at the end of an epoch.
        run.snapshots(store).keep_whole(version, whole)
    # The event comes first, as for a rollback (decision 024): a store that is behind it must be restored, so after a
    # kill here the next server finishes the work.
    journal.append(StoreRestored(version, len(later), lineage.count_unrecorded(begin), lost))
    store.restore(version, whole, [*records, restored_record(version)], lost)
    return len(later)


def unused_version(folder: RunFolder, lineage: Lineage) -> int:
    """Return a version number above all those in the journal and in snapshots, so that none is given twice.

    Raises:
        RunFolderError: The run's folder cannot be read.
    """
    return max([lineage.version, *folder.snapshot_versions()]) + 1


def whole_unless_behind(store: WeightStore, version: int = 0) -> Vector | None:
    """Return a store's whole vector (W and the rule's state), or None if it is below `version` or lost its content.

    Raises:
        StoreError: The store cannot be read.
    """
    try:
        newest, whole = store.read_whole()  # all of it: a chunk may be gone while the version is there
    except StoreLost:
        return None
    return whole if newest >= version else None


def drop_weights(store: WeightStore, snapshots: Snapshots, stopped: StopDecided) -> None:
    """Remove the weights of a job that is over from the store, unless `vcdl resume` could continue it."""
    if stopped.reason != StopReason.SUBTASK_FAILED and snapshots.has(stopped.version):
        with suppress(StoreError):  # an unreachable server keeps them: that costs it room, and no run a result
            store.drop()


def _rebuild_weights(run: Run, lineage: Lineage) -> tuple[int, Vector]:
    """Build the newest weights from the best usable snapshot and the kept uploads after it, in memory.

    Returns:
        The version of the snapshot, and the store's whole vector with the later updates applied.

    Raises:
        StoreError: No snapshot with all its later uploads is usable.
    """
    damage = ""
    # A damaged candidate is skipped: an older snapshot only means more uploads to fold again.
    for version in _candidates(run.folder, lineage):
        try:
            whole = whole_of(version, run)
            for update in lineage.after(version):
                fold_again(run, update, whole)
        except (WeightsFileError, StoreError) as error:  # such as a file that a power cut left half written
            damage = damage or str(error)
            continue
        return version, whole
    raise StoreError(
        f"the store has lost its weights, and they cannot be rebuilt ({damage or 'no snapshot is left'}): "
        f"{_begin_again(run.folder)}"
    )


def _candidates(folder: RunFolder, lineage: Lineage) -> list[int]:
    """Return the versions of the snapshots from which the newest version can be rebuilt, best first.

    Complete versions (`Lineage.bases`) whose later uploads are all kept come first. The others are a last resort: they
    may contain an update without a row, which will be uploaded again and then is applied twice.
    """

    def rank(version: int) -> tuple[bool, int, int]:
        is_exact = version in lineage.bases and _is_enough(version, folder, lineage)
        return is_exact, -lineage.count_unrecorded(version), version

    return sorted(filter(lineage.leads_on, folder.snapshot_versions()), key=rank, reverse=True)


def whole_of(version: int, run: Run) -> Vector:
    """Read the snapshot of a version, and return it as the store's whole vector: W followed by the rule's state.

    Raises:
        WeightsFileError: The snapshot is damaged, or the rule's state of that version was not kept.
    """
    folder, layout, state = run.folder, run.layout, run.state
    # Version 0 has no state file, because the rule then has the state that a store is created with.
    whole = state.initial(read_weights(folder.snapshot(version), layout.size)[0])
    beside = state.beside(whole)
    if version > 0 and beside.size:
        if not folder.state_snapshot(version).exists():
            raise WeightsFileError(f"the rule's state of version {version} was not kept")
        read_weights(folder.state_snapshot(version), beside.size, beside)
    return whole


def _is_enough(version: int, folder: RunFolder, lineage: Lineage) -> bool:
    """Return whether all uploads after `version` are kept."""
    return all(folder.kept_upload(update.version, update.workunit).exists() for update in lineage.after(version))


def _record(update: UpdateApplied) -> Applied:
    """Return the store's record of an update from its journal row."""
    subtask = WorkunitName.parse(update.workunit).subtask
    return Applied(subtask, update.workunit, update.version, update.staleness, update.weight, update.trust)


def fold_again(run: Run, update: UpdateApplied, whole: Vector) -> None:
    """Apply a kept upload to a vector in place, exactly as it was applied before.

    Args:
        run: The run.
        update: The upload's journal row.
        whole: The store's whole vector of the version before; overwritten.

    Raises:
        StoreError: An upload or its base is missing or damaged.
    """
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
    # `refolded` measures and shortens steps as the first fold did, but judges nothing: the upload was accepted, and
    # another verdict would change the weights.
    settings, sums = FoldSettings.of(run, refolded(run)), bool(update.checksum)
    wrong: object = None
    try:
        with closing(open_fold(path, base, settings, facts, judge=None, sums=sums)) as fold:
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
        f"{folder.snapshots}, and `vcdl run {for_shell(folder.job_file)} --out DIR` restarts the job"
    )
