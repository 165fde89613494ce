"""Stores for the tests of a module."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store_backups import Backups, MariadbBackups, RedisBackups
from tests.store_servers import start_mariadb, start_redis


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, start_redis(Path(folder)) as redis:
        yield redis.url


@contextmanager
def backups_on(server: str) -> Iterator[Backups]:
    """A Redis or a MariaDB whose weights can be put back from older copies."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        if server == "redis":
            with start_redis(Path(folder)) as redis:
                yield RedisBackups(redis.url)
        else:
            with start_mariadb(Path(folder)) as mariadb:
                yield MariadbBackups(mariadb.url)
