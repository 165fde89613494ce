"""What all tests share: their environment, tiers and number of examples, and a small disk."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Generator, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pytest

from tests.environment import leave_this_machine_out
from tests.examples import use_profile
from tests.full_disk import disk_of
from tests.places import ROOT
from tests.tiers import IMPLIED, QUICK, TIERS, guard

with contextlib.suppress(ImportError):
    # Before TensorFlow, as vcdl.stores.open.load_client_libraries does: see there.
    import MySQLdb  # noqa: F401

_MODULE_OF_A_TIER = re.compile(rf"^pytestmark = .*\bpytest\.mark\.({'|'.join(TIERS)})\b", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    more = {QUICK: "in none of the tiers above", "sampled(n)": "only every n-th of its cases is not nightly"}
    for name, what in {**TIERS, **more}.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    guard.install()
    use_profile(quick=config.option.markexpr == QUICK)
    if "PYTEST_XDIST_WORKER" not in os.environ:  # they have it from the process that starts them
        home = leave_this_machine_out(ROOT / ".pytest_cache" / "matplotlib")
        if home is not None:
            config.add_cleanup(home.cleanup)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out of a quick run, unread, all modules that say a tier of all their tests."""
    if config.option.markexpr != QUICK or collection_path.suffix != ".py":
        return None
    return _MODULE_OF_A_TIER.search(collection_path.read_text(encoding="utf-8")) is not None or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark each test with what its tiers imply, before pytest selects by markers; arrange those that are left."""
    _leave_to_nightly(items)
    for item in items:
        for tier in {tier for marker in _markers(item) for tier in IMPLIED.get(marker, ())}:
            item.add_marker(tier)
        if _markers(item).isdisjoint(TIERS):
            item.add_marker(QUICK)
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _arranged(items, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _leave_to_nightly(items: list[pytest.Item]) -> None:
    """Of a test that is marked `sampled(n)`, mark all but the first of each n cases as nightly."""
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        for number, case in enumerate(cases):
            marker = case.get_closest_marker("sampled")
            if marker is not None and number % marker.args[0] != 0:
                case.add_marker("nightly")


_LAST = 4
"""The place of tests that take no time."""


def _arranged(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in the order in which every worker begins with its share of those that take long.

    Workers get equal parts of the list. One that has nothing left takes tests from the end of another's part: so no
    long test is left for the end. Tests of a module that share a run or a server stay together.
    """
    by_place = sorted(items, key=_place)
    long = [item for item in by_place if _place(item) < _LAST]
    units = [list(unit) for _, unit in groupby(long, key=lambda item: item.path if _place(item) == 0 else item)]
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for unit in units:
        min(parts, key=len).extend(unit)
    rest = iter(by_place[len(long) :])
    for number, part in enumerate(parts):
        size = len(items) * (number + 1) // workers - len(items) * number // workers
        part.extend(islice(rest, max(0, size - len(part))))
    return [item for part in parts for item in part] + list(rest)


def _place(item: pytest.Item) -> int:
    """Small for what takes long."""
    markers = _markers(item)
    if markers.isdisjoint({"boinc", "process", "keras"}):
        return _LAST
    if any(definition.scope != "function" for definition in _fixtures(item)):
        return 0
    return next(place for place, tier in enumerate(("boinc", "process", "keras"), 1) if tier in markers)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.markexpr == QUICK and "keras" in sys.modules:
        raise pytest.UsageError(
            "Keras was loaded by the modules of quick tests: import it in the functions that use it"
        )


def _fixtures(item: pytest.Item) -> Iterator[Any]:
    """Our fixtures that a test uses."""
    used: Any = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009  pytest tells it nowhere else
    return (definition for each in used for definition in each if definition.func.__module__.startswith("tests."))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with guard.only(_markers(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with guard.only(_markers(item)):
        return (yield)


def _markers(item: pytest.Item) -> frozenset[str]:
    return frozenset(marker.name for marker in item.iter_markers())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    with disk_of(256 << 10, tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        yield Path(folder)
