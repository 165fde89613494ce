"""Open the SQLite file of a journal, to write it or only to read it, and name what is wrong with it.

A reader may be another user, or the file system may be read-only. In WAL mode a reader of SQLite shares a file with the
writers, `journal.db-shm`. While a process has the journal open, that file exists, and permission to read it is enough.
Once all have ended it has to be created, which takes permission to write.
"""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.errors import JournalError, JournalUnavailable, folder_errors
from vcdl.files.version import __version__
from vcdl.journal.clock import TABLE

# Readers (status, evaluator) never block the writer in WAL mode. NORMAL loses nothing on kill -9, only the last
# rows on a power cut.
_WAL = "PRAGMA journal_mode = WAL"
_SYNCHRONOUS = "PRAGMA synchronous = NORMAL"
_FORMAT = 1
"""SQLite's user_version. It is 0 in journals from before it was set; these have the same tables."""
# Several processes may create a journal at once. All tables are created in one transaction, since the processes wait
# for each other at every transaction.
_TABLES = f"""
BEGIN IMMEDIATE;
PRAGMA user_version = {_FORMAT};
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_s REAL NOT NULL,
    kind TEXT NOT NULL,
    key TEXT UNIQUE,
    fields TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS versions ON events (json_extract(fields, '$.version')) WHERE kind = 'update_applied';
"""
_STATES = """
CREATE TABLE IF NOT EXISTS states (
    name TEXT PRIMARY KEY,
    form TEXT NOT NULL,
    last_id INTEGER NOT NULL,
    last_event TEXT NOT NULL,
    state BLOB NOT NULL
);
COMMIT;
"""
_HAS_ALL = "SELECT COUNT(*) = 4 FROM sqlite_master WHERE name IN ('events', 'versions', 'clocks', 'states')"
_FULL = "FULL IOERR_WRITE IOERR_FSYNC IOERR_SHMSIZE IOERR_TRUNCATE BUSY BUSY_RECOVERY"
_PASSING = frozenset(f"SQLITE_{code}" for code in _FULL.split())
"""SQLite's codes for a full disk or quota; a full quota shows only as a failed write."""
_NO_JOURNAL = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR"})
"""SQLite's codes for a damaged file, or for a database whose table `events` is not a journal's."""
_NO_FIELDS = (ValueError, TypeError)
"""Exceptions for fields that are not JSON, or not those of an event."""
_CLOSED = "CANTOPEN READONLY READONLY_CANTINIT READONLY_CANTLOCK READONLY_DIRECTORY READONLY_RECOVERY"
_NOT_WRITABLE = frozenset(f"SQLITE_{code}" for code in _CLOSED.split())
"""SQLite's codes for a companion file that it can neither create nor use."""
_POLL_S = 0.005
"""Seconds between two tries to switch to WAL mode: short, because another process does it in milliseconds."""
_BUSY_TIMEOUT_S = 30
"""Seconds that a process waits for the transaction of another, which takes milliseconds."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a journal, creating the file and its tables if needed.

    Args:
        path: The SQLite file.

    Raises:
        JournalError: It is damaged, or cannot be opened.
    """
    with map_errors(path):
        connection = sqlite3.connect(path, _BUSY_TIMEOUT_S, isolation_level="IMMEDIATE")
        with _closed_on_error(connection):
            _switch_to_wal(connection)
            connection.execute(_SYNCHRONOUS)
            _check_format(connection, path)
            if connection.execute(_HAS_ALL).fetchone() != (1,):
                connection.executescript(_TABLES + TABLE + _STATES)
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, with or without permission to write its folder.

    If a killed process of another user left rows in the log, a temporary copy is read, without events written later.

    Args:
        path: The journal's file.

    Raises:
        JournalError, RunFolderError: The journal cannot be opened.
    """
    with map_errors(path):
        connection = _open_to_read(path)
        with _closed_on_error(connection):
            _check_format(connection, path)
    return connection


def _open_to_read(path: Path) -> sqlite3.Connection:
    try:
        # Try the usual case first: a writer has the journal open, or this process may create the shared file.
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname not in _NOT_WRITABLE or not path.is_file():
            raise
    log = path.with_name(f"{path.name}-wal")
    # `immutable` makes SQLite ignore the log. That is correct only while it is empty.
    if not log.exists() or not log.stat().st_size:  # no process writes, so the file alone is complete
        return _connect(path, "mode=ro&immutable=1")
    # The log has rows and may not be opened in place: a killed process of another user left it. A copy is complete,
    # because the log's frames have checksums and SQLite ignores a torn one.
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, folder_errors(Path(folder)):
        copy = Path(shutil.copyfile(path, Path(folder) / path.name))
        shutil.copyfile(log, copy.with_name(log.name))
        return _connect(copy, "mode=rw")  # an open file stays readable after its name is removed


def _connect(path: Path, options: str) -> sqlite3.Connection:
    """Open an SQLite file with the given URI options, and check that it can be read."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", _BUSY_TIMEOUT_S, uri=True)
    with _closed_on_error(connection):
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # SQLite opens the file only now
    return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, JournalError):
        connection.close()
        raise


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Check the journal's format. Raises JournalError if a later version of vcdl wrote it."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > _FORMAT:
        raise JournalError(
            f"{path} is of format {found}, and this version of vcdl ({__version__}) reads format {_FORMAT}: continue "
            "with the version that wrote it"
        )


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch a new journal to WAL mode, retrying: if several processes do so at once, SQLite fails without waiting."""
    give_up_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(_WAL)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > give_up_s:
                raise
            time.sleep(_POLL_S)


@contextmanager
def map_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors and those of decoding as JournalError, or JournalUnavailable if a retry may succeed."""
    try:
        yield
    except (sqlite3.Error, *_NO_FIELDS) as error:
        name = getattr(error, "sqlite_errorname", "")
        if name in _PASSING:
            raise JournalUnavailable(
                f"the journal cannot be written now ({error}): free some space on its disk, or end what holds the file "
                "(`vcdl resume` continues a run that has ended)"
            ) from error
        # An error without a name is raised by Python's module, not by SQLite: a text that cannot be decoded.
        is_no_text = isinstance(error, sqlite3.OperationalError) and not name
        if name in _NO_JOURNAL or is_no_text or isinstance(error, _NO_FIELDS):
            raise JournalError(
                f"{path} is damaged, or is no journal ({error}): "
                "put a copy of it back, or begin the run again in another folder"
            ) from error
        raise JournalError(
            f"the journal cannot be read or written ({error}): check the disk's free space and the folder's "
            "rights, then `vcdl resume`"
        ) from error
