"""The parts of a parameter server of one job, put together from its run folder; patient when the store is away.

`python -m vcdl.parameter_server RUN_FOLDER` is one server of several: it takes uploads from the folder, folds them into the shared
weights and writes the journal, until its standard input closes. Any number may run, and each may be killed at any moment. While the
store is away, or a disk full, it waits.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vcdl.assimilator import Assimilator
from vcdl.checks import UploadCheck
from vcdl.errors import StoreLost, VcdlError
from vcdl.grids.base import Results
from vcdl.grids.upload_folder import UploadFolder, keep_upload
from vcdl.job import Job, load_frozen_job
from vcdl.journal import Journal
from vcdl.patience import patiently
from vcdl.plan import EVERY_EPOCH
from vcdl.processes.log import log_lines
from vcdl.processes.orphan import end_with_parent
from vcdl.rules.of_job import rule_of
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared, store_settings
from vcdl.run.recovery import applied_updates, is_over, restore_store, whole_unless_behind
from vcdl.run.restore_lock import RestoreLock
from vcdl.run.snapshots import Snapshots
from vcdl.stores import Boundary, WeightStore
from vcdl.stores.open import open_store
from vcdl.weights import Layout

_POLL_S = 0.02


@dataclass(frozen=True)
class ServerParts:
    """What a process needs to serve a job's weights."""

    store: WeightStore
    snapshots: Snapshots
    assimilator: Assimilator
    _folder: RunFolder
    _journal: Journal
    _layout: Layout

    @classmethod
    def of(
        cls, folder: RunFolder, job: Job, prepared: Prepared, journal: Journal, results: Results, validate_every: int
    ) -> "ServerParts":
        """Open the job's store and put the server together. Raises StoreError."""
        rule = rule_of(job)
        store = open_store(store_settings(job, folder), prepared.store_key, prepared.layout.size, rule.state)
        snapshots = Snapshots(folder, store, job.name, prepared.layout.fingerprint)
        check = UploadCheck(
            job.name,
            prepared.layout,
            prepared.shard_samples,
            job.training.local_epochs,
            prepared.initial_norm,
            job.transport.told,
        )
        boundary = None if validate_every == EVERY_EPOCH else Boundary(validate_every, snapshots.keep, snapshots.has)
        folding = RestoreLock(folder).folding
        assimilator = Assimilator(
            results,
            store,
            journal,
            check,
            rule,
            boundary,
            folder.snapshot,
            folding,
            partial(keep_upload, folder),
            folder.held_out_file,
        )
        return cls(store, snapshots, assimilator, folder, journal, prepared.layout)

    def catch_up(self, version: int) -> int:
        """Restore a store that went back behind the journal, or behind `version`, while nobody looked, or forgot everything; returns how
        many updates were folded again. Raises StoreError.
        """
        newest = max([version, *(update.version for update in applied_updates(self._journal))])
        folded, whole = 0, whole_unless_behind(self.store, newest)
        if whole is None:
            folded = self.restore()
            _, whole = self.store.read_whole()
        self.assimilator.check.expect(self.store.state.weights(whole))
        return folded

    def restore(self) -> int:
        """After StoreLost: put the weights back, unless another server has; returns how many updates were folded again. Raises StoreError."""
        rule, transport = self.assimilator.rule, self.assimilator.check.transport
        return restore_store(self.store, self._journal, self._folder, rule, self._layout, transport)


def _serve(folder: RunFolder, say: Callable[[str], None]) -> None:
    job, prepared = load_frozen_job(folder.job_file), Prepared.read(folder)
    journal = patiently(partial(Journal.at, folder.journal_file), say)
    uploads = UploadFolder(folder)
    parts = patiently(partial(ServerParts.of, folder, job, prepared, journal, uploads, job.validate_every), say)
    is_ready, is_lost = False, False
    while True:
        try:
            if is_lost:
                patiently(parts.restore, say)
                is_lost = False
            if not is_ready:
                patiently(partial(parts.catch_up, 0), say)
                is_ready = True
            if not patiently(parts.assimilator.run_once, say):
                time.sleep(_POLL_S)
        except StoreLost as lost:
            if is_over(journal.read()):
                return  # its weights were dropped
            say(str(lost))
            is_lost = True


def main(path: str) -> int:
    """Serve until the standard input closes."""
    end_with_parent()
    say = log_lines("parameter server")
    try:
        _serve(RunFolder.existing(Path(path)), say)
    except VcdlError as error:
        say(str(error))
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
