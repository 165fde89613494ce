"""The store in a SQLite file keeps what every store promises."""

from functools import partial
from pathlib import Path

import pytest
from vcdl_example.sqlite_store import SqliteStore

from vcdl.stores.settings import StoreSettings
from vcdl.testing.folds import SIZE
from vcdl.testing.stores import OpenStore, StoreContract


def open_sqlite(path: Path, size: int = SIZE) -> SqliteStore:
    return SqliteStore(StoreSettings.parse(f"sqlite:{path}"), "job", size)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return partial(open_sqlite, tmp_path / "weights.db")
