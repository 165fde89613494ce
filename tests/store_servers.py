"""Stores on real servers, for tests: a private Redis and MariaDB, and functions that another process can open a store with."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vcdl.state import STATELESS, State
from vcdl.stores import FileStore, WeightStore
from vcdl.stores.chunks import CHUNK_BYTES
from vcdl.stores.private_servers import (
    MARIADB_PROGRAM,
    REDIS_PROGRAM,
    PrivateServer,
    private_mariadb,
    private_redis,
)
from vcdl.stores.settings import StoreSettings

SIZE = 1000
"""Weights in a store, unless a test says otherwise."""

OpenStore = Callable[..., WeightStore]
"""`open_store(size=SIZE)`: a connection of its own to the test's one store, picklable for another process."""


def needs(program: str) -> None:
    """Without the program a test is skipped on a laptop, and fails in CI."""
    if shutil.which(program) is None:
        message = f"{program} is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def start_redis(folder: Path, *options: str) -> PrivateServer:
    needs(REDIS_PROGRAM)
    return private_redis(folder, *options)


def start_mariadb(folder: Path, *options: str) -> PrivateServer:
    needs(MARIADB_PROGRAM)
    return private_mariadb(folder, *options)


def open_file_store(folder: Path, size: int = SIZE, state: State = STATELESS) -> WeightStore:
    return FileStore(folder, size, state)


def open_redis(
    url: str,
    job: str,
    size: int = SIZE,
    consistency: str = "strong",
    chunk_bytes: int = CHUNK_BYTES,
    state: State = STATELESS,
) -> WeightStore:
    from vcdl.stores.redis import RedisStore

    return RedisStore(StoreSettings.parse(url, consistency), job, size, chunk_bytes, state)


def open_mysql(
    url: str,
    job: str,
    size: int = SIZE,
    consistency: str = "strong",
    chunk_bytes: int = CHUNK_BYTES,
    state: State = STATELESS,
) -> WeightStore:
    from vcdl.stores.mysql import MysqlStore

    return MysqlStore(StoreSettings.parse(url, consistency), job, size, chunk_bytes, state)
