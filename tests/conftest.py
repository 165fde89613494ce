"""What all tests share."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.full_disk import disk_of

with contextlib.suppress(ImportError):
    # Before TensorFlow, as vcdl.stores.open.import_client_library does: see there.
    import MySQLdb  # noqa: F401


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    with disk_of(256 << 10, tmp_path / "disk") as disk:
        yield disk
