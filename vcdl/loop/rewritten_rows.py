"""Rewrite rows that the journal has lost, from the store's records.

If a folder is restored from an older copy, its journal is behind the store. Its updates are in the weights, but without
rows their subtasks would be trained again. If the store then lost its weights, they would be applied twice.
"""

from vcdl.journal.events import RowsRewritten, UpdateApplied, WorkunitCreated
from vcdl.journal.journal import Journal
from vcdl.run.folder import RestoreLock
from vcdl.run.run import Run, read_expected
from vcdl.stores import Applied, WeightStore
from vcdl.stores.base import RESTORED
from vcdl.wire.workunit import WorkunitName


def rewrite_rows(run: Run, store: WeightStore, journal: Journal) -> int:
    """Write the rows of updates that the store has and the journal lost, and return their number.

    Takes the RestoreLock, and writes a snapshot of the newest version, since none of these uploads is kept. Rows are
    not written if they are missing only because a server was killed before it wrote them: the uploads are claimed
    again, and contain more facts than the store's records.

    Raises:
        StoreLost, StoreError, JournalError, RunFolderError: Store, journal or folder cannot be used.
    """
    with RestoreLock(run.folder).restoring():
        known = read_expected(journal).version
        # This is the usual case, and costs one comparison, because every process calls this when it starts.
        if store.version() <= known:
            return 0
        records = [
            one
            for one in store.records(known)
            if one.subtask != RESTORED and journal.find(UpdateApplied.key_of(one.subtask)) is None
        ]
        # If the journal knows all workunits, a server was killed between a fold and its row, and the grid still has
        # these uploads. An unknown workunit shows that the journal is an older copy.
        if all(journal.find(WorkunitCreated.key_of(one.workunit)) is not None for one in records):
            return 0
        # None of these uploads is kept, so the snapshot must be on the disk before the event makes it the base of all
        # recovery.
        version = run.snapshots(store).keep_newest(durable=True)
        rows = [_row(run, record) for record in sorted(records, key=lambda one: one.version)]
        journal.append(RowsRewritten(version, len(rows), store.lost_updates()), *rows)
        return len(rows)


def _row(run: Run, record: Applied) -> UpdateApplied:
    """Return an update's row from the store's record. Facts that the record lacks are those of a whole subtask."""
    shard = WorkunitName.parse(record.workunit).shard
    return UpdateApplied(
        workunit=record.workunit,
        version=record.version,
        base_version=record.version - 1 - record.staleness,
        staleness=record.staleness,
        weight=record.weight,
        samples=run.prepared.shard_samples[shard] * run.job.training.local_epochs,
        fraction=1.0,
        train_s=None,
        loss=None,
        bytes_up=0,
        trust=record.trust,
    )
