"""A copy of a run that is a run of its own; it grows under a temporary name, so a killed clone is no run."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from vcdl.errors import RunFolderError, StoreError, folder_errors
from vcdl.files.atomic import final_name, is_leftover, temporary_name
from vcdl.run.finding import holds_anything
from vcdl.run.folder import RestoreLock, RunFolder, RunLock
from vcdl.run.run import Run
from vcdl.run.store_claim import OWN_FOLDER, Claim, new_key

_NOT_COPIED = ("run.lock", "stop.request", "store_claim.json", "journal.db", "journal.db-wal", "journal.db-shm")
_LOCKS = ("restore.lock", "restore.gate")


def clone_run(run: Run, place: Path) -> RunFolder:
    """Copy a run that nobody runs into a new folder; its weights are made from its newest snapshot by who runs it
    first. Raises RunFolderError, StoreError.
    """
    place, source = place.absolute(), run.folder
    if source.kind.has_daemons:
        raise RunFolderError(f"{source.path} is the job of a BOINC project: submit its {source.job_file.name} again")
    if holds_anything(place):
        raise RunFolderError(f"{place} is not empty: choose another folder")
    with RunLock(source), RestoreLock(source).restoring(), folder_errors(place):
        _keep_newest(run)
        place.parent.mkdir(parents=True, exist_ok=True)
        for entry in place.parent.iterdir():
            if is_leftover(entry.name) and final_name(entry.name) == place.name:
                shutil.rmtree(entry)
        copy = RunFolder(temporary_name(place))
        try:
            shutil.copytree(source.path, copy.path, ignore=shutil.ignore_patterns(*_NOT_COPIED, *_LOCKS))
            _copy_journal(source, copy)
            if run.prepared.store != OWN_FOLDER:
                Claim.of(copy, new_key(run.name), place).write(copy)
            with suppress(FileNotFoundError):
                place.rmdir()
            copy.path.rename(place)
        finally:
            shutil.rmtree(copy.path, ignore_errors=True)
    return RunFolder(place)


def _keep_newest(run: Run) -> None:
    """Keep the store's newest weights as a snapshot, if the store answers: otherwise older ones are folded up."""
    with suppress(StoreError), closing(run.store()) as store:
        run.snapshots(store).keep_newest(durable=True)


def _copy_journal(source: RunFolder, copy: RunFolder) -> None:
    with (
        closing(sqlite3.connect(source.journal_file)) as journal,
        closing(sqlite3.connect(copy.journal_file)) as target,
    ):
        journal.backup(target)
