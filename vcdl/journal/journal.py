"""The append-only event log of a job: one table in an SQLite file of the run's folder.

SQLite's write lock serialises appends, so rows become visible in the order of their ids, and a reader that
remembers the last id misses none. Any number of processes may append and read at once; a `Journal` belongs to
the thread that opened it.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from vcdl.errors import JournalError, JournalUnavailable
from vcdl.journal.clock import TABLE, kept_clock, seen_clock
from vcdl.journal.events import Event, Recorded, decode, encode
from vcdl.journal.place import Place, gone
from vcdl.journal.reading import open_to_read

# Readers (status, evaluator) never block the writer in WAL mode. NORMAL loses nothing on kill -9, only the last
# rows on a power cut. Several processes may open a new journal at once: whether there is a table must not be
# asked first.
_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_s REAL NOT NULL,
    kind TEXT NOT NULL,
    key TEXT UNIQUE,
    fields TEXT NOT NULL
);
"""
_APPEND = "INSERT INTO events (time_s, kind, key, fields) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_READ = "SELECT id, time_s, kind, fields FROM events WHERE id > ? ORDER BY id LIMIT ?"
_READ_KEYS = "SELECT id, time_s, kind, fields FROM events WHERE key >= ? AND key < ? ORDER BY id"
_FIND = "SELECT kind, fields FROM events WHERE key = ?"
_READ_NEWEST = "SELECT id, time_s, kind, fields FROM events WHERE kind = ? ORDER BY id DESC LIMIT ?"
_TIME_OF = "SELECT time_s FROM events WHERE key = ?"
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'events'"

_PAGE = 5000
_BUSY_TIMEOUT_S = 30
"""A writer waits this long for another process's transaction; each takes milliseconds."""

_PASSING = frozenset(
    {
        "SQLITE_FULL",
        "SQLITE_IOERR_WRITE",
        "SQLITE_IOERR_FSYNC",
        "SQLITE_IOERR_SHMSIZE",
        "SQLITE_IOERR_TRUNCATE",
        "SQLITE_BUSY",
        "SQLITE_BUSY_RECOVERY",
    }
)
"""SQLite's codes for a full disk or quota; a full quota shows only as a failed write."""

_NO_JOURNAL = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR"})
"""SQLite's codes for a damaged file, or a database whose table `events` is not ours."""

_NO_FIELDS = (ValueError, TypeError, RecursionError)
"""Errors for fields that are no JSON, or nested too deeply."""


Clock = Callable[[], float]
"""Says the time, in seconds."""


class Journal:
    """Events of one job, appended once each and read in order. Opened by `at`, `existing` or `read_only`."""

    def __init__(self, place: Place, connection: sqlite3.Connection, clock: Clock | None, *, may_write: bool) -> None:
        self._place = place
        self._path = place.path
        self._connection = connection
        self._clock = clock
        self._may_write = may_write
        self._has_table = may_write

    @classmethod
    def at(cls, path: Path, clock: Clock | None = None) -> Self:
        """The journal in a file, made when there is none.

        `clock` says the time of an append, in seconds; None: the journal's own. Raises JournalError.
        """
        with _mapped_errors(path):
            connection = sqlite3.connect(path, _BUSY_TIMEOUT_S, isolation_level="IMMEDIATE")
            try:
                connection.executescript(_SETUP + TABLE)
            except sqlite3.Error:
                connection.close()
                raise
        return cls(Place.of(path), connection, clock, may_write=True)

    @classmethod
    def existing(cls, path: Path, clock: Clock | None = None) -> Self:
        """The journal that preparation made. Raises JournalError, also when it was deleted or emptied since."""
        try:
            is_empty = path.stat().st_size == 0
        except FileNotFoundError:
            is_empty = True
        except OSError:  # SQLite says what it is
            is_empty = False
        if is_empty:
            raise gone(path)
        return cls.at(path, clock)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """The journal in an existing file, to be read only; one whose table is not made yet has no events.

        Raises JournalError.
        """
        with _mapped_errors(path):
            connection = open_to_read(path, _BUSY_TIMEOUT_S)
        return cls(Place.of(path), connection, None, may_write=False)

    def append(self, *events: Event, time_s: float | None = None) -> None:
        """Append events in one transaction; one whose key is there already is left out. Raises JournalError."""
        now_s = self.now_s() if time_s is None else time_s
        rows = [(now_s, event.kind, event.key, json.dumps(encode(event))) for event in events]
        if not rows:
            return
        self._check_place()
        with _mapped_errors(self._path), self._connection:
            self._connection.executemany(_APPEND, rows)

    @property
    def clock(self) -> Clock:
        """The clock by which events are timed; it outlives the connection. Raises JournalError."""
        if self._clock is None:
            with _mapped_errors(self._path):
                self._clock = (kept_clock if self._may_write else seen_clock)(self._connection).now_s
        return self._clock

    def now_s(self) -> float:
        """The time of an event that is appended now. Raises JournalError."""
        return self.clock()

    def stream(self, after_id: int = 0) -> Iterator[Recorded]:
        """The events of `read`, with only some thousand in memory at a time. Raises JournalError."""
        while page := self._read(after_id, _PAGE):
            yield from page
            after_id = page[-1].id

    def read(self, after_id: int = 0) -> list[Recorded]:
        """Events with an id above `after_id`, in order. Raises JournalError."""
        return self._read(after_id, limit=-1)

    def keyed(self, begin: str) -> list[Recorded]:
        """Events whose key has this begin, in order; in a time that does not grow with the journal.

        Raises JournalError.
        """
        self._check_place()
        with _mapped_errors(self._path):
            rows = self._connection.execute(_READ_KEYS, (begin, begin[:-1] + chr(ord(begin[-1]) + 1))).fetchall()
            return [_recorded(*row) for row in rows]

    def _check_place(self) -> None:
        """Raises JournalError when the file was deleted or replaced: what is written into it now would be lost."""
        self._place.check(self._connection, may_write=self._may_write)

    def _read(self, after_id: int, limit: int) -> list[Recorded]:
        self._check_place()
        with _mapped_errors(self._path):
            # A process that makes a journal makes the file first, and the table a moment later.
            if not self._has_table and not self._connection.execute(_HAS_TABLE).fetchall():
                return []
            self._has_table = True
            rows = self._connection.execute(_READ, (after_id, limit)).fetchall()
            return [_recorded(*row) for row in rows]

    def find(self, key: str) -> Event | None:
        """The event of a key; None when there is none. Raises JournalError."""
        self._check_place()
        with _mapped_errors(self._path):
            rows = self._connection.execute(_FIND, (key,)).fetchall()
            return decode(rows[0][0], json.loads(rows[0][1])) if rows else None

    def newest(self, kind: str, limit: int) -> list[Recorded]:
        """The last events of a kind, the newest first. Raises JournalError."""
        with _mapped_errors(self._path):
            return [_recorded(*row) for row in self._connection.execute(_READ_NEWEST, (kind, limit)).fetchall()]

    def age_s(self, key: str) -> float | None:
        """Seconds since the event of a key was appended; None when there is none. Raises JournalError."""
        with _mapped_errors(self._path):
            rows = self._connection.execute(_TIME_OF, (key,)).fetchall()
            return self.now_s() - rows[0][0] if rows else None

    def close(self) -> None:
        """Close the file; doing it again is harmless."""
        self._connection.close()


def _recorded(number: int, time_s: float, kind: str, fields: str) -> Recorded:
    if not math.isfinite(time_s):
        raise ValueError("a row without a time")
    return Recorded(number, time_s, decode(kind, json.loads(fields)))


@contextmanager
def _mapped_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, *_NO_FIELDS) as error:
        name = getattr(error, "sqlite_errorname", "")
        if name in _PASSING:
            raise JournalUnavailable(
                f"the journal cannot be written now ({error}): free some space on its disk, or end what holds the file "
                "(`vcdl resume` goes on with a run that has ended)"
            ) from error
        is_no_text = (
            isinstance(error, sqlite3.OperationalError) and not name
        )  # raised by Python's module, not by SQLite
        if name in _NO_JOURNAL or is_no_text or isinstance(error, _NO_FIELDS):
            raise JournalError(
                f"{path} is damaged, or is no journal ({error}): "
                "put a copy of it back, or begin the run again in another folder"
            ) from error
        raise JournalError(
            f"the journal cannot be read or written ({error}): check the disk's free space and the folder's "
            "rights, then `vcdl resume`"
        ) from error
