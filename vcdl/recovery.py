"""Puts the weights back when a store's server has lost its memory: the newest snapshot, then the later updates again, in their order.

What each update was is in the journal, and its upload is kept until an epoch's snapshot covers it, so nothing that was assimilated is
lost; the weights are the same to the last bit when the updates are folded in the same order.
"""

from vcdl.errors import StoreError, WeightsFileError
from vcdl.events import UpdateApplied
from vcdl.journal import Journal
from vcdl.rules import Rule, Update
from vcdl.run_folder import RunFolder
from vcdl.stores import Applied, Fold, WeightStore
from vcdl.weights import Vector, read_weights
from vcdl.workunit import WorkunitName


def restore_store(store: WeightStore, journal: Journal, folder: RunFolder, rule: Rule, size: int) -> int:
    """Restore a store that raised StoreLost; `size`: number of weights. Returns how many updates were folded again.

    Any number of servers may do it at once: one snapshot stands, and each update is folded once. Raises StoreError when a kept
    upload that is needed is gone, StoreUnavailable when the server is away again.
    """
    applied = sorted(
        (row.event for row in journal.read() if isinstance(row.event, UpdateApplied)), key=lambda update: update.version
    )
    version, vector = _newest_snapshot(folder, size)
    store.restore(version, vector, [_record(update) for update in applied if update.version <= version])
    later = [update for update in applied if update.version > version]
    for update in later:
        store.fold([_fold(update, folder, rule, size)])
    return len(later)


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


def _fold(update: UpdateApplied, folder: RunFolder, rule: Rule, size: int) -> Fold:
    name = WorkunitName.parse(update.workunit)

    def apply(server: Vector, _: int) -> float:
        try:
            weights, _header = read_weights(folder.kept_upload(update.version, update.workunit), size)
        except WeightsFileError as error:
            raise StoreError(
                f"the store has lost its weights, and the upload that made version {update.version} is not in "
                f"{folder.kept_uploads} any more ({error}): the run must be begun anew"
            ) from error
        return rule.apply(server, Update(weights, name.epoch, update.staleness, update.samples, update.fraction))

    return Fold(name.subtask, update.workunit, update.base_version, apply)
