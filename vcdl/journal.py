"""The append-only event log of a job, in any database that SQLAlchemy speaks; a local run has an SQLite file.

Appends are serialised (SQLite's write lock), so rows become visible in the order of their ids, and a reader that remembers
the last id misses none.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa

from vcdl.errors import JournalError, JournalUnavailable
from vcdl.events import Event, Recorded, decode, encode

_METADATA = sa.MetaData()
_EVENTS = sa.Table(
    "events",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time_s", sa.Float, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("key", sa.String(200), unique=True),
    sa.Column("fields", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)

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
    }
)
"""What SQLite says when a disk is full, or a quota: of the latter it knows only that a write failed."""


class Journal:
    """Events of one job, appended once each and read in order; `clock` says the time of an append, in seconds."""

    def __init__(self, url: str | sa.URL, clock: Callable[[], float] = time.time, *, is_written: bool = True) -> None:
        """`is_written` False: for reading only; events that nobody has begun to write yet are none. Raises JournalError."""
        self._clock = clock
        self._is_written = is_written
        is_sqlite = sa.make_url(url).get_backend_name() == "sqlite"
        connect_args: dict[str, Any] = {"timeout": _BUSY_TIMEOUT_S} if is_sqlite else {}
        self._engine = sa.create_engine(url, connect_args=connect_args)
        if not is_written:
            return
        if is_sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
        with self._mapped_errors(), self._engine.begin() as connection:
            # Several processes may open a new journal at the same time: whether there is a table must not be asked first.
            connection.execute(sa.schema.CreateTable(_EVENTS, if_not_exists=True))

    @classmethod
    def at(cls, path: Path, clock: Callable[[], float] = time.time) -> Self:
        """The journal in an SQLite file, made when there is none. Raises JournalError."""
        return cls(sa.URL.create("sqlite", database=str(path)), clock)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """The journal in an existing file, for looking on: nothing is made or written. Raises JournalError."""
        quoted = quote(quote(str(path)))  # SQLAlchemy takes one off, SQLite the other
        return cls(f"sqlite:///file:{quoted}?mode=ro&uri=true", is_written=False)

    def append(self, *events: Event, time_s: float | None = None) -> None:
        """Append events in one transaction; one whose key is there already is left out. Raises JournalError."""
        now_s = self._clock() if time_s is None else time_s
        rows = [
            {"time_s": now_s, "kind": event.kind, "key": event.key, "fields": json.dumps(encode(event))}
            for event in events
        ]
        if not rows:
            return
        with self._mapped_errors(), self._engine.begin() as connection:
            connection.execute(sa.insert(_EVENTS).prefix_with("OR IGNORE", dialect="sqlite"), rows)

    def read(self, after_id: int = 0) -> list[Recorded]:
        """Events with an id above `after_id`, in order. Raises JournalError."""
        query = sa.select(_EVENTS).where(_EVENTS.c.id > after_id).order_by(_EVENTS.c.id)
        with self._mapped_errors(), self._engine.connect() as connection:
            # Who makes a journal makes the file first, and the table a moment later.
            if not self._is_written and not sa.inspect(connection).has_table(_EVENTS.name):
                return []
            rows = connection.execute(query).all()
        return [Recorded(row.id, row.time_s, decode(row.kind, json.loads(row.fields))) for row in rows]

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            cause = str(getattr(error, "orig", error))
            if getattr(getattr(error, "orig", None), "sqlite_errorname", None) in _PASSING:
                raise JournalUnavailable(
                    f"the journal cannot be written now ({cause}): free some space on its disk, or end what holds the file "
                    "(`vcdl resume` goes on with a run that has ended)"
                ) from error
            raise JournalError(
                f"the journal cannot be read or written ({cause}): check the disk's free space and the folder's "
                "rights, then `vcdl resume`"
            ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    # Readers (status, evaluator) never block the writer; NORMAL loses nothing on kill -9, only the last rows on a power cut.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def replay(events: Iterable[Event]) -> list[Recorded]:
    """Events as a journal would return them, numbered from 1 at time 0: for tables in tests and for simulators."""
    return [Recorded(number, 0.0, event) for number, event in enumerate(events, start=1)]
