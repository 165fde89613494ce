"""The weight store in MariaDB (10.6 or later) or MySQL (8 or later), InnoDB, with the server's default settings.

A change is one transaction that locks the job's row of vcdl_head first. A `strong` server holds the row while it folds,
so that servers take turns; an `eventual` one holds it only while it writes. Readers see a snapshot: they never wait and
never block others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import Applied, Conflict
from vcdl.stores.chunks import CHUNK_BYTES, chunks, seal, unseal
from vcdl.stores.server_store import Head, ServerStore
from vcdl.stores.settings import PASSWORD_VARIABLE, StoreSettings, Tls
from vcdl.wire.layout import Vector

try:
    from MySQLdb.constants import CR, ER

    from vcdl.stores.mysql_connection import LOGIN, READ_ONLY, RIGHTS, MysqlConnection, code_of, usual_words, words_of
except ModuleNotFoundError as error:
    raise StoreError("a mysql:// store needs the package mysqlclient: pip install mysqlclient") from error

_TABLES = (
    # One row for each job, with the fields of Head.
    """CREATE TABLE IF NOT EXISTS vcdl_head (
        job VARCHAR(128) NOT NULL PRIMARY KEY,
        era CHAR(16) NOT NULL,
        generation CHAR(16) NOT NULL,
        version BIGINT NOT NULL,
        kept BIGINT NOT NULL,
        size BIGINT NOT NULL,
        chunk_bytes INT NOT NULL
    ) ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin""",
    # The weights: chunk `number`, from 0, and its seal (chunks.py).
    """CREATE TABLE IF NOT EXISTS vcdl_chunk (
        job VARCHAR(128) NOT NULL,
        number INT NOT NULL,
        data LONGBLOB NOT NULL,
        PRIMARY KEY (job, number)
    ) ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin""",
    # One row for each folded subtask, with the fields of Applied.
    """CREATE TABLE IF NOT EXISTS vcdl_applied (
        job VARCHAR(128) NOT NULL,
        subtask VARCHAR(160) NOT NULL,
        workunit VARCHAR(255) NOT NULL,
        version BIGINT NOT NULL,
        staleness BIGINT NOT NULL,
        weight DOUBLE NOT NULL,
        trust DOUBLE NOT NULL,
        PRIMARY KEY (job, subtask)
    ) ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin""",
)

_RECORDS = "SELECT subtask, workunit, version, staleness, weight, trust FROM vcdl_applied WHERE job = %s AND"

_PACKET_BYTES = 2 * CHUNK_BYTES + 4096
"""Bytes of a statement with one chunk, since each byte of it may have to be escaped."""


class MysqlStore(ServerStore):
    """Versioned weights in MariaDB or MySQL; any number of processes may use it simultaneously."""

    def __init__(
        self, settings: StoreSettings, job: str, size: int, chunk_bytes: int = CHUNK_BYTES, state: RuleState = STATELESS
    ) -> None:
        """Prepare a store without connecting.

        Args:
            settings: The server's address and login.
            job: The key of the weights.
            size: The number of weights n.
            chunk_bytes: Bytes of a chunk (vcdl.stores.chunks).
            state: The layout of the update rule's own numbers, which follow W.
        """
        super().__init__(settings, job, size, chunk_bytes, state)
        self._database = MysqlConnection(_login(settings), "REPEATABLE READ", self._translation)
        """The connection. Its isolation level makes all chunks of one read belong to one generation."""
        self._holds_turn = False

    def check_service(self) -> None:
        with self._transaction_of_server():
            ((packet_bytes,),) = self._database.execute("SELECT @@max_allowed_packet")
        # A chunk is escaped when it is sent as a literal, to twice its size at most. A smaller packet would fail at the
        # first unlucky chunk, in the middle of a job.
        if packet_bytes < _PACKET_BYTES:
            raise StoreError(
                f"{self._settings} accepts at most {packet_bytes} bytes in a packet, but a chunk of weights needs "
                f"{_PACKET_BYTES}: set max_allowed_packet to 16M, its default, or more"
            )

    def create(self, vector: Vector) -> None:
        self._retry_disturbed(self._make_tables)
        super().create(vector)

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        self._retry_disturbed(self._make_tables)
        return super().restore(version, vector, applied, lost)

    def drop(self) -> None:
        with suppress(_NoTable):
            self._retry_disturbed(self._drop)

    def _drop(self) -> None:
        with self._turn():
            for table in ("vcdl_head", "vcdl_chunk", "vcdl_applied"):
                self._database.execute(f"DELETE FROM {table} WHERE job = %s", self._job)
            self._database.commit()

    def close(self) -> None:
        self._database.close()

    def _head(self) -> Head | None:
        with self._snapshot() as head:
            return head

    @contextmanager
    def _snapshot(self) -> Iterator[Head | None]:
        with self._transaction_of_server():
            yield self._select_head("")

    @contextmanager
    def _turn(self) -> Iterator[Head | None]:
        with self._transaction_of_server():
            head = self._select_head("FOR UPDATE")
            self._holds_turn = True
            yield head

    def _load(self, head: Head, out: Vector) -> None:
        for number, chunk in enumerate(chunks(out, head.chunk_bytes)):
            rows = self._database.execute(
                "SELECT data FROM vcdl_chunk WHERE job = %s AND number = %s", self._job, number
            )
            data = unseal(rows[0][0] if rows else None, len(chunk), head.generation, number)
            if data is None:
                raise self._lost_chunk(number)
            chunk[:] = data

    def _find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        if not subtasks:
            return {}
        rows = self._database.execute(f"{_RECORDS} subtask IN %s", self._job, tuple(subtasks))
        return {row[0]: Applied(*row) for row in rows}

    def _records(self, after_version: int) -> list[Applied]:
        with self._transaction_of_server():
            return [
                Applied(*row) for row in self._database.execute(f"{_RECORDS} version > %s", self._job, after_version)
            ]

    def _make_tables(self) -> None:
        with self._transaction_of_server():
            # The user may lack permission to create tables, and they may already exist.
            if len(self._database.execute("SHOW TABLES LIKE 'vcdl\\_%'")) < len(_TABLES):
                for table in _TABLES:
                    self._database.execute(table)

    def _replace(self, old: Head | None, new: Head, vector: Vector, applied: Sequence[Applied], *, anyway: bool) -> int:
        if self._holds_turn:
            return self._replace_in_turn(old, new, vector, applied, anyway)
        with self._transaction_of_server():  # ends the snapshot that an eventual fold has read from
            return self._replace_in_turn(old, new, vector, applied, anyway)

    def _replace_in_turn(
        self, old: Head | None, new: Head, vector: Vector, applied: Sequence[Applied], anyway: bool
    ) -> int:
        """Do the work of `_replace` within a transaction, and commit it."""
        head = self._select_head("FOR UPDATE")
        # An eventual write may overwrite any newer version, but not weights that were restored in the meantime, which
        # have another era.
        is_same = (head and head.era) == (old and old.era) if anyway else head == old
        if not is_same:
            raise Conflict
        version = new.version
        if anyway and head is not None:
            # The row's lock makes this number the next one, whichever server wrote in between.
            version = head.version + len(applied)
        if head is None or head.era != new.era:
            self._database.execute("DELETE FROM vcdl_chunk WHERE job = %s", self._job)
            self._database.execute("DELETE FROM vcdl_applied WHERE job = %s", self._job)
            statement = "INSERT INTO vcdl_chunk (data, job, number) VALUES (%s, %s, %s)"
        else:
            # Updating rows is as fast as deleting and inserting them, and simpler (decision 005).
            statement = "UPDATE vcdl_chunk SET data = %s WHERE job = %s AND number = %s"
        for record in applied:
            moved = record.version + version - new.version
            self._database.execute(
                "INSERT INTO vcdl_applied (job, subtask, workunit, version, staleness, weight, trust) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                self._job, record.subtask, record.workunit, moved, record.staleness, record.weight, record.trust,
            )  # fmt: skip
        for number, chunk in enumerate(chunks(vector, new.chunk_bytes)):
            self._database.execute(statement, seal(chunk, new.generation, number), self._job, number)
        self._database.execute(
            "REPLACE INTO vcdl_head (job, era, generation, version, kept, size, chunk_bytes) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            self._job, new.era, new.generation, version, new.kept, new.size, new.chunk_bytes,
        )  # fmt: skip
        self._database.commit()
        return version

    def _select_head(self, lock: str) -> Head | None:
        """Return the job's head, or None without one; `lock` is "FOR UPDATE" to lock its row, or empty."""
        try:
            rows = self._database.execute(
                f"SELECT era, generation, version, kept, size, chunk_bytes FROM vcdl_head WHERE job = %s {lock}",
                self._job,
            )
        except _NoTable:
            return None
        return Head(*rows[0]) if rows else None

    @contextmanager
    def _transaction_of_server(self) -> Iterator[None]:
        """Begin a transaction, which is rolled back at the end of the block unless it was committed."""
        try:
            with self._database.transaction():
                yield
        finally:
            self._holds_turn = False

    def _translation(self, error: Exception) -> Exception:
        """Return the exception to raise for one of MySQLdb: a StoreError that says what to do, or Conflict."""
        code, words = code_of(error), words_of(error)
        if code in (ER.DUP_ENTRY, ER.LOCK_DEADLOCK, ER.CHECKREAD, ER.TABLE_DEF_CHANGED):
            return Conflict()
        if code == ER.NO_SUCH_TABLE:
            return _NoTable(f"{self._settings} has lost tables of VCDL ({words}): the weights must be rebuilt")
        if code in LOGIN:
            return StoreError(
                f"{self._settings} refused the login ({words}): check the user, the password in the URL or in "
                f"{PASSWORD_VARIABLE}, and that the user may use the database"
            )
        if code in RIGHTS:
            return StoreError(
                f"{self._settings} denied this user a permission ({words}): "
                "grant it SELECT, INSERT, UPDATE, DELETE and CREATE on the database"
            )
        if code == CR.SSL_CONNECTION_ERROR:
            return StoreError(
                f"{self._settings}: the TLS connection failed ({words}): "
                "name the certificate authority in the URL with ca=PATH, and use a host name that the certificate "
                "contains"
            )
        if code == ER.BAD_DB_ERROR:
            return StoreError(
                f"{self._settings}: {words}: create it with CREATE DATABASE, or name another one in the URL"
            )
        if code == ER.NET_PACKET_TOO_LARGE:
            return StoreError(
                f"{self._settings} refused a chunk ({words}): set max_allowed_packet to 16M, its default, or more"
            )
        if code in READ_ONLY:
            return StoreUnavailable(
                f"{self._settings} accepts no writes ({words}): if it is a replica, name its primary; otherwise wait"
            )
        said, passes = usual_words(error)
        return (StoreUnavailable if passes else StoreError)(f"{self._settings} {said}")


class _NoTable(StoreLost):
    """A table of VCDL is missing: nothing was ever stored, or a dump is being loaded, which drops each table first."""


def _login(settings: StoreSettings) -> dict[str, Any]:
    """Return the arguments of `MySQLdb.connect` for a store's address, login and TLS."""
    protection: dict[str, Any] = {"ssl_mode": "PREFERRED"}
    if settings.tls != Tls.OFF:
        protection = {"ssl_mode": "REQUIRED" if settings.tls == Tls.REQUIRE else "VERIFY_IDENTITY"}
        if settings.ca:
            protection["ssl"] = {"ca": settings.ca}
    # For this library, localhost means a socket whose path it chooses.
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    address: dict[str, Any] = (
        {"unix_socket": settings.socket} if settings.socket else {"host": host, "port": settings.port}
    )
    return {
        "user": settings.user,
        "password": settings.password,
        "database": settings.database,
        # A character set of one byte: with another one, client and server scan a BLOB's literal letter by letter,
        # three times as slowly.
        "charset": "latin1",
        "binary_prefix": True,
        **address,
        **protection,
    }
