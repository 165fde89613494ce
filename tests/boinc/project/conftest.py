"""A made project in a real MariaDB, new for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.project.made_project import MadeProject
from tests.boinc.standin.config import Database
from vcdl.boinc.project.app_version import ClientFiles


@pytest.fixture(scope="session")
def client() -> ClientFiles:
    """As install builds it."""
    return ClientFiles.build()


@pytest.fixture
def made(
    mariadb: PrivateServer, client: ClientFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MadeProject]:
    monkeypatch.setattr(ClientFiles, "build", classmethod(lambda *_: client))  # once is enough
    monkeypatch.setenv("MYSQL_UNIX_PORT", str(mariadb.socket))
    project = MadeProject.make(tmp_path / "project", Database.of(mariadb))
    yield project
    project.database.close()
