"""Open a journal that this process may not write: another user's, or one on a read-only file system.

In WAL mode a reader of SQLite shares a file with the writers, `journal.db-shm`. While a process has the journal open,
that file exists, and permission to read it is enough. Once all have ended it has to be created, which takes permission
to write.
"""

import shutil
import sqlite3
import tempfile
from pathlib import Path

from vcdl.errors import folder_errors

_CLOSED = "CANTOPEN READONLY READONLY_CANTINIT READONLY_CANTLOCK READONLY_DIRECTORY READONLY_RECOVERY"
_NOT_WRITABLE = frozenset(f"SQLITE_{code}" for code in _CLOSED.split())
"""SQLite's codes for a companion file that it can neither create nor use."""


def open_to_read(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Open a journal for reading, with or without permission to write its folder.

    If a killed process of another user left rows in the log, a temporary copy is read, without events written later.

    Args:
        path: The journal's file.
        timeout_s: Seconds to wait for the transaction of another process.

    Raises:
        sqlite3.Error, RunFolderError: The journal cannot be opened.
    """
    try:
        # Try the usual case first: a writer has the journal open, or this process may create the shared file.
        return _connect(path, "mode=ro", timeout_s)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname not in _NOT_WRITABLE or not path.is_file():
            raise
    log = path.with_name(f"{path.name}-wal")
    # `immutable` makes SQLite ignore the log. That is correct only while it is empty.
    if not log.exists() or not log.stat().st_size:  # no process writes, so the file alone is complete
        return _connect(path, "mode=ro&immutable=1", timeout_s)
    # The log has rows and may not be opened in place: a killed process of another user left it. A copy is complete,
    # because the log's frames have checksums and SQLite ignores a torn one.
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, folder_errors(Path(folder)):
        copy = Path(shutil.copyfile(path, Path(folder) / path.name))
        shutil.copyfile(log, copy.with_name(log.name))
        return _connect(copy, "mode=rw", timeout_s)  # an open file stays readable after its name is removed


def _connect(path: Path, options: str, timeout_s: float) -> sqlite3.Connection:
    """Open an SQLite file with the given URI options, and check that it can be read."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", timeout_s, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # SQLite opens the file only now
    except sqlite3.Error:
        connection.close()
        raise
    return connection
