"""The errors of MariaDB and MySQL by meaning, for the two modules that turn MySQLdb's exceptions into ours."""

import MySQLdb
from MySQLdb.constants import CR, ER

LOGIN = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1698}
RIGHTS = {ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR}
FULL = {3, 20, 28, 1021, 1026, 1030, 1034, ER.RECORD_FILE_FULL}
"""A full disk: errors of a file (EE_WRITE, EE_DISK_FULL, ENOSPC) or of the engine (ER_DISK_FULL, ER_ERROR_ON_WRITE,
…)."""
READ_ONLY = {1290, 1836}
"""The server takes no writes, for a while or as a replica."""
BUSY = {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.CHECKREAD}
"""Another transaction holds the rows, or has changed them."""
_AWAY = {
    CR.CONNECTION_ERROR, CR.CONN_HOST_ERROR, CR.UNKNOWN_HOST, CR.SERVER_GONE_ERROR, CR.SERVER_LOST,
    CR.SERVER_LOST_EXTENDED, ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.QUERY_INTERRUPTED, 1927, 4031,
}  # fmt: skip
"""The server is down, starting, stopping, or out of connections."""


def code_of(error: Exception) -> int:
    """The error's number; 0 when it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def words_of(error: Exception) -> str:
    """The message of the server or the library, in one short line."""
    return " ".join(str(part) for part in error.args[1:] or error.args)[:200]


def is_away(error: Exception) -> bool:
    """Whether the connection is lost, or cannot be made for now."""
    return code_of(error) in _AWAY or isinstance(error, MySQLdb.InterfaceError)
