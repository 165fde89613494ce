"""The stores under test: a folder, and real servers of our own that are started once, or by a test that kills them."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from benchmarks.private_servers import PrivateServer
from tests.store_servers import (
    on_server,
    open_file_store,
    open_mysql,
    open_redis,
    start_mariadb,
    start_redis,
)
from vcdl.errors import StoreUnavailable
from vcdl.stores import WeightStore
from vcdl.stores.chunks import CHUNK_BYTES
from vcdl.testing.folds import weights
from vcdl.testing.stores import OpenStore

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """A Redis or a MariaDB, with what a test may do to it."""

    name: str
    url: str
    open_at: OpenStore

    def open(self, job: str = "job", url: str = "", **options: Any) -> WeightStore:
        """A connection of its own to the weights of `job`."""
        return self.open_at(url or self.url, job, **options)

    def created(self, job: str = "job", url: str = "", **options: Any) -> WeightStore:
        """The same, with version 0 in it."""
        store = self.open(job, url, **options)
        store.create(weights(0))
        return store

    def chunk(self, job: str, number: int) -> bytes:
        """The bytes that are kept of a chunk."""
        if self.name == "redis":
            (key,) = redis_client(self.url).scan_iter(f"vcdl:{{{job}}}:*:{number}")
            data: bytes = redis_client(self.url).get(key)
            return data
        return bytes(sql(self.url, f"SELECT data FROM vcdl_chunk WHERE job = '{job}' AND number = {number}")[0][0])

    def put_chunk(self, job: str, number: int, data: bytes | None) -> None:
        """Put something else in a chunk's place, or remove it."""
        if self.name == "redis":
            (key,) = redis_client(self.url).scan_iter(f"vcdl:{{{job}}}:*:{number}")
            if data is None:
                redis_client(self.url).delete(key)
            else:
                redis_client(self.url).set(key, data)
        else:
            change = "DELETE FROM vcdl_chunk" if data is None else f"UPDATE vcdl_chunk SET data = x'{data.hex()}'"
            sql(self.url, f"{change} WHERE job = '{job}' AND number = {number}")

    def forget(self) -> None:
        """Lose the weights."""
        if self.name == "redis":
            redis_client(self.url).flushall()
        else:
            sql(self.url, "DROP TABLE vcdl_head")

    def left(self, job: str) -> int:
        """How many keys or rows there are of a job."""
        if self.name == "redis":
            return sum(f"{{{job}}}".encode() in key for key in redis_client(self.url).scan_iter())
        tables = ("vcdl_head", "vcdl_chunk", "vcdl_applied")
        return sum(sql(self.url, f"SELECT COUNT(*) FROM {table} WHERE job = '{job}'")[0][0] for table in tables)


def redis_client(url: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=url.partition("socket=")[2])


def sql(url: str, statement: str) -> Any:
    """The rows that a statement returns to an administrator."""
    import MySQLdb

    with MySQLdb.connect(unix_socket=url.partition("socket=")[2], user="root", database="vcdl") as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = cursor.fetchall()
        connection.commit()
        return rows


def retried(call: Callable[[], T]) -> T:
    """As a patient server does."""
    give_up = time.monotonic() + 30
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


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


@pytest.fixture(params=[on_server("redis"), on_server("mysql")])
def service(request: pytest.FixtureRequest) -> Service:
    """A server that all tests share: what is done to it must concern the test's own job only."""
    return _service(request.param, request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["redis", "mysql"])
def own_service(request: pytest.FixtureRequest, short_folder: Path) -> Iterator[tuple[Service, PrivateServer]]:
    """A server of the test's own, which it may kill; a kill -9 does not touch what it has on disk."""
    starting: dict[str, Callable[[], AbstractContextManager[PrivateServer]]] = {
        "redis": lambda: start_redis(short_folder, "--appendonly", "yes", "--appendfsync", "always"),
        "mysql": lambda: start_mariadb(short_folder),
    }
    with starting[request.param]() as server:
        yield _service(request.param, server.url), server


def _service(name: str, url: str) -> Service:
    return Service(name, url, {"redis": open_redis, "mysql": open_mysql}[name])


@pytest.fixture(params=["file", *map(on_server, ("redis", "redis in chunks", "mysql", "mysql in chunks"))])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, job: str) -> OpenStore:
    """Opens the test's one store, once more at every call; `in chunks`: of 100 weights, the last one shorter or
    full.
    """
    kind, _, in_chunks = request.param.partition(" ")
    if kind == "file":
        return partial(open_file_store, tmp_path / "store")
    open_one = {"redis": open_redis, "mysql": open_mysql}[kind]
    chunk_bytes = 400 if in_chunks else CHUNK_BYTES
    return partial(open_one, request.getfixturevalue(f"{kind}_url"), job, chunk_bytes=chunk_bytes)
