"""A consistent cut of a project's files, made as its user while jobs run: hard links, which take no room and no time.

    python -m vcdl.boinc.server.cut PROJECT staged     links of download/ and upload/
    python -m vcdl.boinc.server.cut PROJECT runs       the runs, and the links of what came since

A backup makes the first before it dumps the database, and the second afterwards. So it contains each file to which a
row of the database or of a journal refers, whether the file was created or deleted in between. A run is locked for the
moment of its cut. No process applies updates or writes to its journal then, so journal, weights and snapshots are
consistent.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from vcdl.files.atomic import is_leftover
from vcdl.run.folder import RestoreLock, RunFolder

CUT = Path("vcdl") / ".backup"
"""The folder, below the project's, of the links until they are packed."""
_STAGED = ("download", "upload")
_COPIED = ("store", "workers.log")
"""Parts of a run that are modified in place, so they are copied: a hard link would change with the original."""
_PASSING = {"slots", "uploads", "verify", "run.lock", "restore.lock", "restore.gate", "stop.request"}
_JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm")
_HELD_S = 60.0
"""Seconds to wait for a run's lock: longer than any single update takes to apply."""


def cut_staged(project: Path) -> None:
    """Hard-link the files of download/ and upload/ into the cut; files that are linked already are skipped.

    Raises:
        OSError: A link cannot be made.
    """
    for name in _STAGED:
        for folder, _, files in os.walk(project / name):
            target = project / CUT / Path(folder).relative_to(project)
            target.mkdir(parents=True, exist_ok=True)
            for file in files:
                _link(Path(folder) / file, target / file)


def cut_runs(project: Path) -> None:
    """Link or copy each run's files into the cut; each run is locked for the moment of its cut.

    Raises:
        OSError, sqlite3.Error, RunFolderError: A run cannot be locked, read or copied.
    """
    runs = project / "vcdl" / "runs"
    for path in sorted(runs.iterdir()) if runs.is_dir() else []:
        target = project / CUT / path.relative_to(project)
        with _held(RunFolder(path)):
            _cut_run(path, target)


@contextmanager
def _held(run: RunFolder) -> Iterator[None]:
    """Lock a run, so that no process applies updates, restores it or appends to its journal in the meantime."""
    if not run.journal_file.exists():  # a run in preparation, or a folder of the service
        yield
        return
    # The restore lock keeps updates and restores out, and BEGIN IMMEDIATE keeps writers out of the journal. Readers are
    # not blocked in WAL mode.
    with RestoreLock(run).restoring(), closing(sqlite3.connect(run.journal_file, _HELD_S)) as journal:
        journal.isolation_level = None
        journal.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            journal.execute("ROLLBACK")


def _cut_run(path: Path, target: Path) -> None:
    for folder, folders, files in os.walk(path):
        relative = Path(folder).relative_to(path)
        if not relative.parts:
            # Change the list in place, so that os.walk does not enter slots and uploads, which change while they are
            # read.
            folders[:] = [name for name in folders if name not in _PASSING]
            files = [name for name in files if name not in (*_PASSING, *_JOURNAL)]
        (target / relative).mkdir(parents=True, exist_ok=True)
        # Copy the store, which writes into its files: a link would change with it. All other files are replaced as a
        # whole.
        is_copied = relative.parts[:1] == _COPIED[:1]
        for name in files:
            if is_leftover(name):
                continue
            if is_copied or name in _COPIED:
                with suppress(FileNotFoundError):
                    shutil.copy2(Path(folder) / name, target / relative / name)
            else:
                _link(Path(folder) / name, target / relative / name)
    if (path / "journal.db").exists():
        with (
            # SQLite's own backup includes what is still in the write-ahead log.
            closing(sqlite3.connect(path / "journal.db", _HELD_S)) as journal,
            closing(sqlite3.connect(target / "journal.db")) as copy,
        ):
            journal.backup(copy)


def _link(path: Path, target: Path) -> None:
    """Link a file, unless it is linked already or has disappeared. Files are replaced and never modified."""
    if path.is_symlink():
        return
    with suppress(FileNotFoundError, FileExistsError):
        try:
            os.link(path, target)
        # An upload belongs to the web server's user, and the kernel lets only its owner link it.
        except PermissionError:
            shutil.copy2(path, target)


def main(project: str, what: str) -> None:
    """Make one of the two parts of a cut.

    Args:
        project: The project's folder.
        what: `staged`, which first deletes the cut of a killed backup, or `runs`.
    """
    if what == "staged":
        shutil.rmtree(Path(project) / CUT, ignore_errors=True)
        cut_staged(Path(project))
    else:
        cut_runs(Path(project))
        cut_staged(Path(project))


if __name__ == "__main__":
    main(*sys.argv[1:])
