"""Private servers side by side: none disturbs another."""

import tempfile
from pathlib import Path

import MySQLdb
import pytest

from tests.store_servers import start_mariadb

pytestmark = pytest.mark.server


def test_a_mariadb_that_starts_leaves_the_temporary_tables_of_another_alone(server_folder: Path) -> None:
    with start_mariadb(server_folder) as first:
        socket = str(first.socket)
        with MySQLdb.connect(unix_socket=socket, user="root", database="vcdl") as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE TEMPORARY TABLE kept (number INT) ENGINE=MyISAM")
            cursor.execute("INSERT INTO kept VALUES (7)")
            with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, start_mariadb(Path(folder)):
                cursor.execute("FLUSH TABLES")
                cursor.execute("SELECT number FROM kept")
                assert cursor.fetchall() == ((7,),)
                cursor.execute("ALTER TABLE kept ADD COLUMN other INT")
