"""The append-only event log of a job: one table in an SQLite file of the run's folder.

SQLite's write lock serialises appends, so rows become visible in the order of their ids, and a reader that
remembers the last id misses none. Any number of processes may append and read at once; a `Journal` belongs to
the thread that opened it.
"""

import hashlib
import math
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Self

from vcdl.journal.clock import detect_reboot, load_or_create_clock, seen_clock
from vcdl.journal.database import map_errors, open_to_read, open_to_write
from vcdl.journal.events import Event, Recorded, UpdateApplied
from vcdl.journal.place import Place, gone
from vcdl.journal.rows import decode, encode

_APPEND = "INSERT INTO events (time_s, kind, key, fields) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_READ = "SELECT id, time_s, kind, fields FROM events WHERE id > ? ORDER BY id LIMIT ?"
_READ_KEYS = "SELECT id, time_s, kind, fields FROM events WHERE key >= ? AND key < ? ORDER BY id"
_READ_KINDS = "SELECT id, time_s, kind, fields FROM events WHERE id > ? AND kind IN ({}) ORDER BY id LIMIT ?"
_READ_BACKWARDS = "SELECT id, time_s, kind, fields FROM events WHERE id < ? AND kind = ? ORDER BY id DESC LIMIT ?"
_LAST = "SELECT id, time_s, kind, fields FROM events WHERE id = ?"
_LAST_ID = "SELECT id FROM events ORDER BY id DESC LIMIT 1"
_FIND = "SELECT id, time_s, kind, fields FROM events WHERE key = ?"
_READ_NEWEST = "SELECT id, time_s, kind, fields FROM events WHERE kind = ? ORDER BY id DESC LIMIT ?"
_KEEP_STATE = """
INSERT INTO states (name, form, last_id, last_event, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    form = excluded.form, last_id = excluded.last_id, last_event = excluded.last_event, state = excluded.state
WHERE excluded.form != form OR excluded.last_id > last_id
"""
_FIND_STATE = "SELECT last_id, last_event, state FROM states WHERE name = ? AND form = ?"
_HAS_STATES = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'states'"
_NEWEST = """
SELECT kind, fields FROM events WHERE kind = 'update_applied' ORDER BY json_extract(fields, '$.version') DESC LIMIT 1
"""
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'events'"

_PAGE = 5000
"""Rows read at once: a few MB of memory, and large enough that a query's fixed cost is negligible."""
_FEW = 200
"""Rows read at once from the end, because usually the first few suffice."""
_BEHIND_ALL = 2**62

Clock = Callable[[], float]
"""A function that returns the time in seconds."""


class Journal:
    """The event log of one job: events are appended once each and read in order.

    Of several events with the same key only the first is stored, so an event may be appended again after a kill. Open
    the journal by `at`, `existing` or `read_only`. All methods except `close` raise JournalError if the journal cannot
    be read or written, or if its file was deleted or replaced.
    """

    def __init__(self, place: Place, connection: sqlite3.Connection, clock: Clock | None, *, may_write: bool) -> None:
        self._place = place
        self._path = place.path
        self._connection = connection
        self._clock = clock
        self._may_write = may_write
        self._has_table = may_write

    @classmethod
    def at(cls, path: Path, clock: Clock | None = None) -> Self:
        """Open the journal in a file, creating it if there is none.

        Args:
            path: The SQLite file.
            clock: Gives the time of appended events in seconds; by default the journal's own steady clock.

        Raises:
            JournalError: The file is damaged, or cannot be opened.
        """
        connection = open_to_write(path)  # creates the file, whose place is then noted
        return cls(Place.of(path), connection, clock, may_write=True)

    @classmethod
    def existing(cls, path: Path, clock: Clock | None = None) -> Self:
        """Open the journal that preparation created. Raises JournalError, also if it was deleted or emptied since."""
        try:
            is_empty = path.stat().st_size == 0
        except FileNotFoundError:
            is_empty = True
        except OSError:  # SQLite reports the cause
            is_empty = False
        if is_empty:
            raise gone(path)
        return cls.at(path, clock)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """Open an existing journal read-only; a file without tables counts as an empty journal. Raises JournalError."""
        connection = open_to_read(path)
        return cls(Place.of(path), connection, None, may_write=False)

    def append(self, *events: Event, time_s: float | None = None) -> None:
        """Append events in one transaction, except those whose key is already in the journal. Raises JournalError.

        `time_s` is the time of all these events; by default it is the journal's time now.
        """
        if events:
            now_s = self.now_s() if time_s is None else time_s
            self.append_at([(now_s, event) for event in events])

    @property
    def clock(self) -> Clock:
        """The clock by which events are timed. It may be called after the journal was closed. Raises JournalError."""
        if self._clock is None:
            with map_errors(self._path):
                self._clock = (load_or_create_clock if self._may_write else seen_clock)(self._connection).now_s
        return self._clock

    def detect_reboot(self) -> str:
        """Return this boot's id if the machine rebooted since the journal was created, else "". Raises JournalError."""
        with map_errors(self._path):
            return detect_reboot(self._connection)

    def now_s(self) -> float:
        """Return the time that an event appended now would get. Raises JournalError."""
        return self.clock()

    def append_at(self, events: Sequence[tuple[float, Event]]) -> None:
        """Append (time, event) pairs in one transaction; otherwise like `append`. Raises JournalError."""
        self._check_place()
        with map_errors(self._path), self._connection:
            self._connection.executemany(
                _APPEND, [(time_s, event.kind, event.key, encode(event)) for time_s, event in events]
            )

    def stream(
        self, after_id: int = 0, kinds: Collection[type[Event]] = (), at_once: int = _PAGE
    ) -> Iterator[Recorded]:
        """Yield events in order.

        Args:
            after_id: Yield only events with a higher id.
            kinds: Yield only events of these kinds; if empty, of all kinds.
            at_once: Number of rows that each query reads.

        Raises:
            JournalError: The journal cannot be read.
        """
        while page := self._read(after_id, at_once, [kind.kind for kind in kinds]):
            yield from page
            after_id = page[-1].id

    def backwards(self, kind: type[Event]) -> Iterator[Recorded]:
        """Yield the events of a kind, the newest first, reading a page at a time. Raises JournalError."""
        before_id = _BEHIND_ALL
        while True:
            self._check_place()
            with map_errors(self._path):
                rows = self._connection.execute(_READ_BACKWARDS, (before_id, kind.kind, _FEW)).fetchall()
                page = [_decode_row(*row) for row in rows]
                if page and page[-1].id >= before_id:
                    raise ValueError(f"row {page[-1].id} comes before row {before_id}")
            yield from page
            if len(page) < _FEW:
                return
            before_id = page[-1].id

    def read(self, after_id: int = 0) -> list[Recorded]:
        """Return the events with an id above `after_id`, in order. Raises JournalError."""
        return self._read(after_id, limit=-1)

    def events_with_key_prefix(self, begin: str) -> list[Recorded]:
        """Return the events whose key starts with `begin`, in order, by an index. Raises JournalError."""
        self._check_place()
        with map_errors(self._path):
            rows = self._connection.execute(_READ_KEYS, (begin, begin[:-1] + chr(ord(begin[-1]) + 1))).fetchall()
            return [_decode_row(*row) for row in rows]

    def _check_place(self) -> None:
        """Check that the file was not deleted or replaced, else rows would be lost. Raises JournalError."""
        self._place.check(self._connection, may_write=self._may_write)

    def keep_state(self, name: str, form: str, last_id: int, state: bytes) -> None:
        """Store a state computed from the events up to `last_id` in the journal's own file.

        A stored state of the same name is replaced, unless it has the same form and contains as many or more events.

        Args:
            name: The name of the state.
            form: Identifies code and settings that computed the state; `load_state` requires the same.
            last_id: The id of the last event in the state.
            state: The packed state.

        Raises:
            JournalError: The journal cannot be written.
        """
        self._check_place()
        event = self.digest(last_id) or ""
        with map_errors(self._path), self._connection:
            self._connection.execute(_KEEP_STATE, (name, form, last_id, event, state))

    def digest(self, number: int) -> str | None:
        """Return a hash that identifies the event with this id; None if there is none. Raises JournalError."""
        with map_errors(self._path):
            return _digest(self._connection.execute(_LAST, (number,)).fetchall())

    @property
    def path(self) -> Path:
        """The path of the journal's file."""
        return self._path

    @property
    def may_write(self) -> bool:
        """Whether this process may write to the journal."""
        return self._may_write

    def load_state(self, name: str, form: str) -> tuple[int, bytes] | None:
        """Return the id of the last event in a stored state, and the packed state.

        Returns:
            None if no state of this name and form is stored, or if its last event is not in this journal (such as after
            a copy of an older journal was restored).

        Raises:
            JournalError: The journal cannot be read.
        """
        self._check_place()
        with map_errors(self._path):
            if not self._connection.execute(_HAS_STATES).fetchall():
                return None
            rows = self._connection.execute(_FIND_STATE, (name, form)).fetchall()
            if not rows or rows[0][1] != self.digest(rows[0][0]):
                return None
        last_id, _, state = rows[0]
        return (last_id, state) if isinstance(state, bytes) else None

    def _read(self, after_id: int, limit: int, kinds: Sequence[str] = ()) -> list[Recorded]:
        """Return at most `limit` events (-1: all) with an id above `after_id`, of the given kinds or of all."""
        self._check_place()
        with map_errors(self._path):
            # A process that creates a journal creates the file first, and the table a moment later.
            if not self._has_table and not self._connection.execute(_HAS_TABLE).fetchall():
                return []
            self._has_table = True
            if kinds:
                query = _READ_KINDS.format(", ".join("?" * len(kinds)))
                rows = self._connection.execute(query, (after_id, *kinds, limit)).fetchall()
            else:
                rows = self._connection.execute(_READ, (after_id, limit)).fetchall()
            return _in_order(after_id, [_decode_row(*row) for row in rows])

    def find(self, key: str) -> Recorded | None:
        """Return the event with a key; None if there is none. Raises JournalError."""
        self._check_place()
        with map_errors(self._path):
            rows = self._connection.execute(_FIND, (key,)).fetchall()
            return _decode_row(*rows[0]) if rows else None

    def newest(self, kind: str, limit: int) -> list[Recorded]:
        """Return the last `limit` events of a kind, the newest first. Raises JournalError."""
        with map_errors(self._path):
            return [_decode_row(*row) for row in self._connection.execute(_READ_NEWEST, (kind, limit)).fetchall()]

    def last_id(self) -> int:
        """Return the id of the last event; 0 if there is none. Raises JournalError."""
        with map_errors(self._path):
            return int(next(self._connection.execute(_LAST_ID), (0,))[0])

    def newest_update(self) -> UpdateApplied | None:
        """Return the update with the highest version, by an index; None if there is none. Raises JournalError."""
        with map_errors(self._path):
            for kind, fields in self._connection.execute(_NEWEST).fetchall():
                event = decode(kind, fields)
                return event if isinstance(event, UpdateApplied) else None
            return None

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        self._connection.close()


def _in_order(after_id: int, page: list[Recorded]) -> list[Recorded]:
    """Return a page of rows unchanged, after checking that ids increase from `after_id` on.

    In a damaged file they may not, and a reader would then loop forever.

    Raises:
        ValueError: They do not.
    """
    for recorded in page:
        if recorded.id <= after_id:
            raise ValueError(f"row {recorded.id} comes after row {after_id}")
        after_id = recorded.id
    return page


def _decode_row(number: int, time_s: float, kind: str, fields: str) -> Recorded:
    if not math.isfinite(time_s):
        raise ValueError("a row without a time")
    return Recorded(number, time_s, decode(kind, fields))


def _digest(rows: Sequence[tuple[object, ...]]) -> str | None:
    """Return the hash that identifies an event; None if it does not exist."""
    return hashlib.sha256(repr(rows[0]).encode()).hexdigest() if rows else None
