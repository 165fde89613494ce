"""A weight store in one SQLite file: `store: {url: "sqlite:weights.db"}`.

Any number of processes of this machine may use it at once. A commit is SQLite's, and survives a power cut.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import Applied, Transaction, WeightStore, check_expected
from vcdl.stores.change import InMemory
from vcdl.stores.settings import StoreKind, StoreSettings
from vcdl.wire.layout import Vector

_TABLES = (
    "CREATE TABLE IF NOT EXISTS head (job TEXT PRIMARY KEY, version INTEGER, vector BLOB)",
    """CREATE TABLE IF NOT EXISTS applied (job TEXT, subtask TEXT, workunit TEXT, version INTEGER, staleness INTEGER,
    weight REAL, trust REAL, PRIMARY KEY (job, subtask))""",
)
_WAIT_S = 60.0
"""Time to wait for the transaction of another process."""


class SqliteStore(WeightStore):
    """Versioned weights in a SQLite file. It is always strong."""

    def __init__(self, settings: StoreSettings, job: str, size: int, state: RuleState = STATELESS) -> None:
        """`size`: the number of weights n. Nothing is opened yet."""
        self.state = state
        self._size = state.size(size)
        self._settings = settings
        self._job = job
        self._connection: sqlite3.Connection | None = None

    def create(self, vector: Vector) -> None:
        if vector.size != self.state.weights(np.empty(self._size, np.float32)).size:
            raise StoreError(f"{vector.size} weights for job {self._job} in {self._settings}: another model's")
        with self._transacted() as connection:
            new = (self._job, 0, self.state.begun(vector).tobytes())
            connection.execute("INSERT OR IGNORE INTO head VALUES (?, ?, ?)", new)

    def version(self) -> int:
        with self._transacted() as connection:
            return self._head(connection)[0]

    def read(self) -> tuple[int, Vector]:
        version, whole = self.read_whole()
        return version, self.state.weights(whole)

    def read_whole(self) -> tuple[int, Vector]:
        with self._transacted() as connection:
            return self._head(connection)

    def records(self, after_version: int) -> list[Applied]:
        with self._transacted() as connection:
            self._head(connection)
            return self._found(connection, "version > ?", after_version)

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        with self._transacted() as connection:
            connection.execute("DELETE FROM applied WHERE job = ?", (self._job,))
            self.write(connection, version, vector, applied)
        return True

    def drop(self) -> None:
        with self._transacted() as connection:
            for table in ("head", "applied"):
                connection.execute(f"DELETE FROM {table} WHERE job = ?", (self._job,))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._transacted() as connection:
            yield _Open(self, connection, *self._head(connection))

    def found(self, connection: sqlite3.Connection, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """The records of those subtasks that have one."""
        records = (record for subtask in subtasks for record in self._found(connection, "subtask = ?", subtask))
        return {record.subtask: record for record in records}

    def write(self, connection: sqlite3.Connection, version: int, whole: Vector, applied: Sequence[Applied]) -> None:
        """Write a version with the records of its updates."""
        connection.execute("REPLACE INTO head VALUES (?, ?, ?)", (self._job, version, whole.tobytes()))
        rows = [(self._job, *asdict(record).values()) for record in applied]
        connection.executemany("INSERT INTO applied VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _head(self, connection: sqlite3.Connection) -> tuple[int, Vector]:
        """The newest version and its whole vector. Raises StoreLost, StoreError."""
        where = f"job {self._job} in {self._settings}"
        row = connection.execute("SELECT version, vector FROM head WHERE job = ?", (self._job,)).fetchone()
        if row is None:
            raise StoreLost(f"there is no {where}: restore the newest snapshot")
        whole = np.frombuffer(row[1], np.float32).copy()
        if whole.size != self._size:
            raise StoreError(f"{where} has {whole.size} weights, and not {self._size}: those of another model")
        check_expected(self.expected(), row[0], lambda subtasks: self.found(connection, subtasks), where)
        return row[0], whole

    def _found(self, connection: sqlite3.Connection, condition: str, value: object) -> list[Applied]:
        columns = "subtask, workunit, version, staleness, weight, trust"
        rows = connection.execute(f"SELECT {columns} FROM applied WHERE job = ? AND {condition}", (self._job, value))
        return [Applied(*row) for row in rows]

    @contextmanager
    def _transacted(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else is in: left by an error, it has changed nothing. Raises StoreUnavailable."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._settings.folder, timeout=_WAIT_S, isolation_level=None)
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for table in _TABLES:
                    self._connection.execute(table)
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._settings} cannot be used: {error}") from error


class _Open(Transaction):
    def __init__(self, store: SqliteStore, connection: sqlite3.Connection, version: int, whole: Vector) -> None:
        self.version = version
        self._store = store
        self._connection = connection
        self._whole = whole

    @property
    def working(self) -> InMemory:
        return InMemory(self._whole, self._store.state)

    def weights(self) -> Vector:
        return self._store.state.weights(self._whole)

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        return self._store.found(self._connection, subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        self._store.write(self._connection, version, self._whole, applied)
        return version


SQLITE = StoreKind("sqlite", opens="vcdl_example.sqlite_store:SqliteStore")
