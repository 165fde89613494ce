"""A connection to MariaDB or MySQL that reconnects after a loss, and the meaning of both servers' errors.

The weight store and the grid of a BOINC project use it. Each thread has its own. It connects on first use and is closed
when the server goes away; the next call reconnects. Within a transaction it never reconnects, because the server has
rolled back the first part by then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import MySQLdb
from MySQLdb.constants import CR, ER

LOGIN = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1698}
RIGHTS = {ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR}
FULL = {3, 20, 28, 1021, 1026, 1030, 1034, ER.RECORD_FILE_FULL}
"""Codes for a full disk, from a file (EE_WRITE, EE_DISK_FULL, ENOSPC) or of the engine (ER_DISK_FULL,
ER_ERROR_ON_WRITE, …)."""
READ_ONLY = {1290, 1836}
"""Codes for a server that refuses writes, for a while or as a replica."""
BUSY = {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.CHECKREAD}
"""Codes for rows that another transaction has locked or changed."""
_AWAY = {
    CR.CONNECTION_ERROR, CR.CONN_HOST_ERROR, CR.UNKNOWN_HOST, CR.SERVER_GONE_ERROR, CR.SERVER_LOST,
    CR.SERVER_LOST_EXTENDED, ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.QUERY_INTERRUPTED, 1927, 4031,
}  # fmt: skip
"""Codes for a server that is down, starting, stopping, or out of connections."""


_CONNECT_S = 10
_ANSWER_S = 120
"""Longest wait for a statement, in seconds: longer than the server's wait for a locked row (innodb_lock_wait_timeout,
50 s), and longer than a large COMMIT takes."""


class MysqlConnection:
    """A connection for one thread, which is opened at the first use and again after a loss.

    All methods except `close` raise the exceptions that `translation` returns.
    """

    def __init__(self, login: Mapping[str, Any], isolation: str, translation: Callable[[Exception], Exception]) -> None:
        """Prepare a connection without connecting.

        Args:
            login: Arguments of `MySQLdb.connect` without the time-outs.
            isolation: The isolation level of its transactions, whatever the server's default.
            translation: Converts an exception of MySQLdb to a VcdlError, whose message says what to do.
        """
        self._login = login
        self._isolation = isolation
        self._translation = translation
        self._connection: Any = None
        self._in_transaction = False

    def execute(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Execute a statement and return its rows as tuples.

        Args:
            statement: The statement, with `%s` for each argument.
            arguments: The values; a tuple becomes a list in parentheses, as for `IN %s`.
        """
        with self._translate_errors(), self._connect().cursor() as cursor:
            cursor.execute(statement, arguments or None)
            rows: Sequence[Any] = cursor.fetchall()
            return rows

    def insert(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert many rows in one statement."""
        with self._translate_errors(), self._connect().cursor() as cursor:
            cursor.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, which is rolled back at the end of the block unless it was committed."""
        self._roll_back()  # notices if the server has closed an idle connection, so that the next line reconnects
        self.execute("START TRANSACTION")
        self._in_transaction = True
        try:
            yield
        finally:
            if self._in_transaction:
                self._in_transaction = False
                self._roll_back()

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")
        self._in_transaction = False

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        if self._connection is not None:
            with suppress(MySQLdb.Error):
                self._connection.close()
            self._connection = None

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except MySQLdb.Error:  # cut off: the server rolls back on its own
                self.close()

    def _connect(self) -> Any:
        if self._connection is None:
            # The server has rolled back the first part of the transaction. On a new connection the other statements
            # would be committed without it.
            if self._in_transaction:
                raise MySQLdb.OperationalError(CR.SERVER_LOST, "lost within a transaction, which is rolled back")
            connection = MySQLdb.connect(
                connect_timeout=_CONNECT_S,
                read_timeout=_ANSWER_S,
                write_timeout=_ANSWER_S,
                autocommit=True,
                **self._login,
            )
            # Set it for the session and not for one transaction, because the server's default may be READ COMMITTED, in
            # which two chunks could be of two versions.
            connection.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {self._isolation}")
            self._connection = connection
        return self._connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except MySQLdb.Error as error:
            if is_away(error):
                self.close()
            raise self._translation(error) from None


def code_of(error: Exception) -> int:
    """Return the error's number, or 0 if it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def words_of(error: Exception) -> str:
    """Return the message of the server or the library on one short line."""
    return " ".join(str(part) for part in error.args[1:] or error.args)[:200]


def usual_words(error: Exception) -> tuple[str, bool]:
    """Return the end of a message, to follow the server's name, and whether a retry may succeed."""
    code, words = code_of(error), words_of(error)
    if code in FULL:
        return f"cannot write ({words}): is the disk of the server full?", True
    if code in BUSY or is_away(error):  # busy: the lock was never granted
        return f"cannot be reached ({words}): is the server running?", True
    return f"refused a statement ({code}: {words}): MariaDB 10.6 or MySQL 8 is needed", False


def is_away(error: Exception) -> bool:
    """Return whether the connection is lost or currently cannot be made."""
    return code_of(error) in _AWAY or isinstance(error, MySQLdb.InterfaceError)
