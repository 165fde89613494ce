"""A Redis for the tests of a module."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store_servers import start_redis


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, start_redis(Path(folder)) as redis:
        yield redis.url
