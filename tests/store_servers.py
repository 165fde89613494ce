"""Stores on real servers, for tests: a private Redis and MariaDB, and functions that another process can open a
store with.
"""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.private_servers import (
    MARIADB_PROGRAM,
    REDIS_PROGRAM,
    PrivateServer,
    private_mariadb,
    private_redis,
)
from tests.environment import folder_of_this_run
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores import FileStore, WeightStore
from vcdl.stores.chunks import CHUNK_BYTES
from vcdl.stores.settings import StoreSettings
from vcdl.testing.folds import SIZE


def needs(program: str) -> None:
    """Without the program a test is skipped on a laptop, and fails in CI."""
    if shutil.which(program) is None:
        message = f"{program} is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def on_server(parameter: str) -> pytest.ParameterSet:
    """A parameter whose tests need a server: what asks for a fixture by a name put together says its tiers itself."""
    return pytest.param(parameter, marks=[pytest.mark.server, pytest.mark.process])


def start_redis(folder: Path, *options: str) -> PrivateServer:
    needs(REDIS_PROGRAM)
    return private_redis(folder, *options)


def start_mariadb(folder: Path, *options: str) -> PrivateServer:
    needs(MARIADB_PROGRAM)
    prepared = _prepared_mariadb()
    if prepared is not None and not (folder / prepared.name).exists():
        _copy(prepared, folder / prepared.name)
    return private_mariadb(folder, *options)


def _prepared_mariadb() -> Path | None:
    """A data folder that no server has seen yet, made once for all tests: that takes seconds, and a copy none."""
    shared = folder_of_this_run()
    if shared is None:
        return None
    prepared = shared / "mariadb"
    if not prepared.exists():
        with tempfile.TemporaryDirectory(dir=shared) as own:
            private_mariadb(Path(own))
            with suppress(OSError):  # another worker was first
                (Path(own) / prepared.name).rename(prepared)
    return prepared


def _copy(folder: Path, to: Path) -> None:
    """A log of 100 MB that holds nothing yet becomes a hole."""
    subprocess.run(["cp", "-a", "--sparse=always", str(folder), str(to)], check=True)


def open_file_store(folder: Path, size: int = SIZE, state: RuleState = STATELESS) -> WeightStore:
    return FileStore(folder, size, state)


def open_served(
    url: str,
    job: str,
    size: int = SIZE,
    consistency: str = "strong",
    chunk_bytes: int = CHUNK_BYTES,
    state: RuleState = STATELESS,
) -> WeightStore:
    settings = StoreSettings.parse(url, consistency)
    module, _, name = settings.kind.opens.partition(":")
    store: WeightStore = getattr(import_module(module), name)(settings, job, size, chunk_bytes, state)
    return store


open_redis = open_mysql = open_served
