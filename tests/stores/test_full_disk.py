"""Servers whose disk is full: VCDL waits for them, and they continue automatically when there is room again."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.full_disk import disk_of, fill
from tests.store_servers import start_mariadb, start_redis
from tests.stores.conftest import Service, _service, retried
from vcdl.errors import StoreUnavailable
from vcdl.stores import WeightStore
from vcdl.testing.folds import fold, replayed, weights

pytestmark = pytest.mark.server

_FOLDS = 3000
_SIZE = 100_000


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 256 MiB, with a path that is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, disk_of(256 << 20, Path(folder) / "disk") as disk:
        yield disk


def created(service: Service) -> WeightStore:
    store = service.open(size=_SIZE)
    store.create(weights(0, _SIZE))
    return store


def until_refused(store: WeightStore, begin: int) -> tuple[int, str]:
    """Fold until the server has no room; returns how many were folded, and what was said."""
    for number in range(begin, _FOLDS):
        try:
            store.fold([fold(number, size=_SIZE)])
        except StoreUnavailable as error:
            return number, str(error)
    pytest.fail("the disk never was full")


def goes_on(service: Service, store: WeightStore, filler: Path, folded: int) -> None:
    """Nothing is lost, and it continues once the filler is gone, with nobody's help."""
    assert store.read()[1].tobytes() == replayed(*range(folded), size=_SIZE).tobytes()
    with pytest.raises(StoreUnavailable):
        store.fold([fold(folded, size=_SIZE)])
    filler.unlink()
    assert retried(lambda: store.fold([fold(folded, size=_SIZE)]))[0].version == folded + 1
    assert service.open(size=_SIZE).read()[1].tobytes() == replayed(*range(folded + 1), size=_SIZE).tobytes()


def test_a_redis_that_cannot_write_its_append_only_file(disk: Path) -> None:
    with start_redis(disk, "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0") as server:
        service = _service("redis", server.url)
        store = created(service)
        store.fold([fold(0, size=_SIZE)])
        filler = fill(disk, but_for_bytes=64 << 10)
        folded, said = until_refused(store, 1)
        assert "accepts no writes now" in said
        assert "MISCONF" in said
        goes_on(service, store, filler, folded)


def test_a_mariadb_that_cannot_make_its_files_larger(disk: Path) -> None:
    with start_mariadb(disk) as server:
        service = _service("mysql", server.url)
        store = created(service)
        store.fold([fold(0, size=_SIZE)])
        filler = fill(disk, but_for_bytes=64 << 10)
        begin = time.monotonic()
        folded, said = until_refused(store, 1)
        assert "is the disk of the server full?" in said, said
        print(f"refused after {folded} folds and {time.monotonic() - begin:.1f} s: {said}")
        goes_on(service, store, filler, folded)
