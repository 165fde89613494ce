"""The database of a BOINC project: one connection, renewed after a loss. Outside of `transaction()` every statement
commits by itself, and sees what others committed (READ COMMITTED), unlike InnoDB's default.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from vcdl.boinc.grid.project_folder import APP, BoincProject
from vcdl.errors import GridError, GridUnavailable

try:
    import MySQLdb
    from MySQLdb.constants import ER

    from vcdl.stores.mysql_errors import BUSY, FULL, LOGIN, code_of, is_away, words_of
except ModuleNotFoundError as error:
    raise GridError("a BOINC project needs the package mysqlclient: pip install mysqlclient") from error

_CONNECT_S = 10
_ANSWER_S = 120
"""Seconds for one statement: more than the wait for a locked row (innodb_lock_wait_timeout, 50 s)."""


@contextmanager
def opened_project(folder: Path) -> "Iterator[tuple[BoincProject, BoincDatabase]]":
    """The project in a folder, and its database until the block ends. Raises GridError, and what the block raises."""
    project = BoincProject.at(folder)
    with closing(BoincDatabase(project)) as database:
        yield project, database


class BoincDatabase:
    """A connection for one thread. Raises GridUnavailable while the server is away; the next call reconnects."""

    def __init__(self, project: BoincProject) -> None:
        """The connection is made on the first call."""
        self._project = project
        self._connection: Any = None
        self._in_transaction = False

    def execute(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Rows of a statement, as tuples. A tuple among the arguments becomes a list in parentheses."""
        with self._translated(), self._connected().cursor() as cursor:
            cursor.execute(statement, arguments or None)
            rows: Sequence[Any] = cursor.fetchall()
            return rows

    def insert(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert many rows in one statement."""
        with self._translated(), self._connected().cursor() as cursor:
            cursor.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all statements inside together at the block's end, or none when it raises or the process dies."""
        self.execute("START TRANSACTION")
        self._in_transaction = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False

    @cached_property
    def app_id(self) -> int:
        """Id of our app in this project. Raises GridError when it is not installed."""
        rows = self.execute("SELECT id FROM app WHERE name = %s", APP)
        if not rows:
            raise GridError(
                f"the project in {self._project.path} has no app {APP}: install it with "
                f"`vcdl project install --project-dir {self._project.path}`"
            )
        return int(rows[0][0])

    def close(self) -> None:
        if self._connection is not None:
            with suppress(MySQLdb.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None:
            if self._in_transaction:  # the first part was rolled back: the rest must not be done alone
                raise GridUnavailable(f"{self._name} was lost within a transaction: it is rolled back")
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> Any:
        project = self._project
        address: dict[str, Any] = {"host": project.db_host, "port": project.db_port}
        if project.db_host == "localhost":
            address = {"unix_socket": project.db_socket} if project.db_socket else {}
        connection = MySQLdb.connect(
            user=project.db_user,
            password=project.db_password,
            database=project.db_name,
            charset="utf8mb4",
            connect_timeout=_CONNECT_S,
            read_timeout=_ANSWER_S,
            write_timeout=_ANSWER_S,
            autocommit=True,
            **address,
        )
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except MySQLdb.Error:  # disconnected: the server rolls back by itself
                self.close()

    @property
    def _name(self) -> str:
        return f"the project's database {self._project.db_name} on {self._project.db_host}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn every exception of MySQLdb into a GridError with advice."""
        try:
            yield
        except MySQLdb.Error as error:
            raise self._translation(error) from None

    def _translation(self, error: Exception) -> GridError:
        code, words = code_of(error), words_of(error)
        if code in BUSY:
            return GridUnavailable(f"{self._name} is busy ({words}): another process holds the rows")
        if code in FULL:
            return GridUnavailable(f"{self._name} cannot write ({words}): is the disk of the server full?")
        if is_away(error):
            self.close()
            return GridUnavailable(f"{self._name} cannot be reached ({words}): is the server running?")
        if code in LOGIN:
            return GridError(
                f"{self._name} refused the login ({words}): "
                f"check db_user and db_passwd in {self._project.path / 'config.xml'}"
            )
        if code in (ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.BAD_DB_ERROR):
            return GridError(
                f"{self._name} is not that of a current BOINC server ({words}): upgrade it with BOINC's bin/upgrade"
            )
        return GridError(f"{self._name} refused a statement ({code}: {words}): MariaDB 10.6 or MySQL 8 is needed")
