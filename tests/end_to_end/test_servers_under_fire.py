"""Several parameter servers on one run folder, killed at random together with their store: nothing is lost or counted
twice."""

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.private_servers import PrivateServer
from tests.end_to_end.vcdl_process import applied
from tests.served_run import ServedRun, noise, servers, start_server
from tests.store_servers import start_redis
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.weights import Vector

pytestmark = pytest.mark.server

WEIGHTS = 50_000
SERVERS = 4
MARK = 25
"""Weights in the block that shows whether an update is in the weights."""
MARKED_ALPHA = 0.999
"""With which the first of 2 000 updates can still be seen in float32 at the end."""
TIMEOUT_S = 600.0


def _initial(marked: bool, size: int = WEIGHTS) -> Vector:
    return np.zeros(size, np.float32) if marked else noise(0, size)


def _upload(number: int, marked: bool, size: int) -> Vector:
    """`marked`: not noise but zero outside a block of its own, so that it shows in the weights."""
    if not marked:
        return noise(number + 1, size)
    weights = np.zeros(WEIGHTS, np.float32)
    weights[number * MARK : (number + 1) * MARK] = 1
    return weights


def _under_fire(
    run: ServedRun,
    service: PrivateServer | None,
    updates: int,
    marked: bool = False,
    size: int = WEIGHTS,
) -> tuple[int, int]:
    """Bring all updates, a few at a time, and kill servers and store (`service`) meanwhile; returns how many of each
    were killed.
    """
    chance = random.Random(1)
    killed_servers = killed_stores = brought = 0
    next_kill_at = 10
    deadline_s = time.monotonic() + TIMEOUT_S
    with servers(run.folder.path, SERVERS) as running:
        while brought < updates or run.waiting():
            assert time.monotonic() < deadline_s, f"{run.waiting()} uploads still wait"
            assert all(server.poll() is None for server in running), (run.folder.path / "workers.log").read_text()[
                -2000:
            ]
            for _ in range(min(updates - brought, 16 - run.waiting())):
                run.bring(brought, _upload(brought, marked, size))
                brought += 1
            if brought - run.waiting() >= next_kill_at:  # by progress, so that it is as hard on a fast machine
                next_kill_at += chance.randint(5, 25)
                if service is not None and chance.random() < 0.3:
                    service.kill()
                    time.sleep(0.3)
                    service.start()
                    killed_stores += 1
                else:
                    victim = chance.randrange(SERVERS)
                    running[victim].kill()
                    running[victim].communicate()
                    running[victim] = start_server(run.folder.path)
                    killed_servers += 1
            time.sleep(0.01)
    return killed_servers, killed_stores


def _check_rows(run: ServedRun, updates: int, *, forgets: bool) -> None:
    """Each update has a row and a version of its own. Where a server is killed between its fold and its row, others
    fold on, and the store then forgets it all, that version is given to nobody.
    """
    rows = applied(run.folder.path)
    versions = {update.version for update in rows}
    assert len({update.key for update in rows}) == len(rows) == len(versions) == updates
    assert run.store.version() == max(versions)
    assert forgets or max(versions) == updates


def _check_strong(run: ServedRun, updates: int, *, forgets: bool = False) -> None:
    _check_rows(run, updates, forgets=forgets)
    _, weights = run.store.read()
    np.testing.assert_array_equal(weights, run.replayed())


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("updates", [100, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_four_servers_over_a_folder_end_with_a_replay_of_the_journal(tmp_path: Path, updates: int) -> None:
    size = 2 * FOLD_BLOCK + 5
    run = ServedRun.new(tmp_path / "run", _initial(marked=False, size=size), "")
    killed, _ = _under_fire(run, None, updates, size=size)
    print(f"{updates} updates over a folder: {killed} servers killed")
    _check_strong(run, updates)


@pytest.mark.parametrize("updates", [200, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_four_servers_over_a_redis_that_forgets_end_with_a_replay_of_the_journal(
    short_folder: Path, tmp_path: Path, updates: int
) -> None:
    with start_redis(short_folder) as redis:
        run = ServedRun.new(tmp_path / "run", _initial(marked=False), redis.url)
        killed = _under_fire(run, redis, updates)
        print(f"{updates} updates over Redis: {killed[0]} servers and Redis {killed[1]} times killed")
        _check_strong(run, updates, forgets=True)


@pytest.mark.nightly
@pytest.mark.parametrize("updates", [200, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_lost_updates_of_an_eventual_redis_that_forgets_are_counted(
    short_folder: Path, tmp_path: Path, updates: int
) -> None:
    """Updates that were overwritten before the store lost its data are folded in again when it is restored, here from
    the job's start, and then not missing any more."""
    with start_redis(short_folder) as redis:
        _check_eventual(redis, tmp_path / "run", updates)


def _check_eventual(service: PrivateServer, folder: Path, updates: int) -> None:
    """At the end an update is in the weights, or it is counted."""
    run = ServedRun.new(folder, _initial(marked=True), service.url, "eventual", MARKED_ALPHA)
    killed = _under_fire(run, service, updates, marked=True)
    _check_rows(run, updates, forgets=True)
    _, weights = run.store.read()
    present = sum(bool(weights[number * MARK]) for number in range(updates))
    lost = run.store.lost_updates()
    print(f"{lost} of {updates} updates were overwritten: {killed[0]} servers and the store {killed[1]} times killed")
    assert lost == updates - present
