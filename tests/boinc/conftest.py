"""A MariaDB for all stand-ins of a worker, and a real BOINC project, where there is one."""

from collections.abc import Iterator

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.real_project import RealProject
from tests.store_servers import start_mariadb


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    # Its data must outlive a kill of the process, not of the machine.
    with start_mariadb(tmp_path_factory.mktemp("boinc"), "--innodb-flush-log-at-trx-commit=2") as server:
        yield server


@pytest.fixture
def real() -> Iterator[RealProject]:
    """It has VCDL in it, and its daemons run."""
    with RealProject.installed() as project:
        yield project
