"""A stand-in BOINC project in a real MariaDB, new for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.grid.world import World
from tests.boinc.standin.config import Database


@pytest.fixture
def world(mariadb: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("MYSQL_UNIX_PORT", str(mariadb.socket))
    made = World.make(tmp_path, Database.of(mariadb))
    yield made
    made.close()
