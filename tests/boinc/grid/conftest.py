"""A stand-in BOINC project in a real MariaDB, new for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.grid.world import World
from tests.boinc.standin.config import Database
from tests.store_servers import start_mariadb


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    # Its data must outlive a kill of the process, not of the machine.
    with start_mariadb(tmp_path_factory.mktemp("boinc"), "--innodb-flush-log-at-trx-commit=2") as server:
        yield server


@pytest.fixture
def world(mariadb: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("MYSQL_UNIX_PORT", str(mariadb.socket))
    made = World.make(tmp_path, Database.of(mariadb))
    yield made
    made.close()
