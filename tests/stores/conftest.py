"""The stores under test: a folder, and real servers of our own that are started once."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.store_servers import OpenStore, open_file_store, open_mysql, open_redis, start_mariadb, start_redis
from vcdl.stores.chunks import CHUNK_BYTES


@pytest.fixture
def server_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, start_redis(Path(folder)) as server:
        yield server.url


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, start_mariadb(Path(folder)) as server:
        yield server.url


@pytest.fixture
def job() -> str:
    """A name that no other test's weights have."""
    return f"job-{uuid4().hex[:12]}"


@pytest.fixture(params=["file", "redis", "redis in chunks", "mysql", "mysql in chunks"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, job: str) -> OpenStore:
    """Opens the test's one store, once more at every call; `in chunks`: of 100 weights, the last one shorter or full."""
    kind, _, in_chunks = request.param.partition(" ")
    if kind == "file":
        return partial(open_file_store, tmp_path / "store")
    open_one = {"redis": open_redis, "mysql": open_mysql}[kind]
    chunk_bytes = 400 if in_chunks else CHUNK_BYTES
    return partial(open_one, request.getfixturevalue(f"{kind}_url"), job, chunk_bytes=chunk_bytes)
