"""Query the database of a BOINC project over one connection, which is renewed after a loss.

Outside `transaction()` every statement commits at once. Statements read what others have committed (READ COMMITTED),
unlike with InnoDB's default.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from vcdl.boinc.grid.project_folder import APP, BoincProject
from vcdl.errors import GridError, GridUnavailable, for_shell

try:
    from MySQLdb.constants import ER

    from vcdl.stores.mysql_connection import BUSY, LOGIN, MysqlConnection, code_of, usual_words, words_of
except ModuleNotFoundError as error:
    raise GridError("a BOINC project needs the package mysqlclient: pip install mysqlclient") from error


@contextmanager
def open_project(folder: Path) -> "Iterator[tuple[BoincProject, BoincDatabase]]":
    """Yield the project in a folder, and its database.

    Raises:
        GridError: The project cannot be read. Errors of the block pass through.
    """
    project = BoincProject.at(folder)
    with closing(BoincDatabase(project)) as database:
        yield project, database


class BoincDatabase(MysqlConnection):
    """A connection to the project's database, for one thread.

    Calls raise GridUnavailable while the server cannot be reached; the next call reconnects.
    """

    def __init__(self, project: BoincProject) -> None:
        """Prepare the connection, which the first statement opens."""
        super().__init__(_login(project), "READ COMMITTED", self._meaning)
        self._project = project

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block together at its end, or none if it raises or the process dies."""
        with super().transaction():
            yield
            self.commit()

    @cached_property
    def app_id(self) -> int:
        """The id of our app in this project.

        Raises:
            GridError: The app is not installed.
        """
        rows = self.execute("SELECT id FROM app WHERE name = %s", APP)
        if not rows:
            raise GridError(
                f"the project in {self._project.path} has no app {APP}: install it with "
                f"`vcdl project install --project-dir {for_shell(self._project.path)}`"
            )
        return int(rows[0][0])

    @property
    def _name(self) -> str:
        return f"the project's database {self._project.db_name} on {self._project.db_host}"

    def _meaning(self, error: Exception) -> GridError:
        code, words = code_of(error), words_of(error)
        if code in BUSY:
            return GridUnavailable(f"{self._name} is busy ({words}): another process holds the rows")
        if code in LOGIN:
            return GridError(
                f"{self._name} refused the login ({words}): "
                f"check db_user and db_passwd in {self._project.path / 'config.xml'}"
            )
        if code in (ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.BAD_DB_ERROR):
            return GridError(
                f"{self._name} is not that of a current BOINC server ({words}): upgrade it with BOINC's bin/upgrade"
            )
        said, passes = usual_words(error)
        return (GridUnavailable if passes else GridError)(f"{self._name} {said}")


def _login(project: BoincProject) -> dict[str, Any]:
    address: dict[str, Any] = {"host": project.db_host, "port": project.db_port}
    if project.db_host == "localhost":
        address = {"unix_socket": project.db_socket} if project.db_socket else {}
    return {
        "user": project.db_user,
        "password": project.db_password,
        "database": project.db_name,
        "charset": "utf8mb4",
        **address,
    }
