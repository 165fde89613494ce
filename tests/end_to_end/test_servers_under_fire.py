"""Several parameter servers on one run folder, killed at random together with their store: nothing is lost or counted
twice."""

import random
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.private_servers import PrivateServer
from tests.end_to_end.vcdl_process import applied
from tests.served_run import ServedRun, noise, servers, start_server
from tests.store_servers import start_redis

pytestmark = pytest.mark.server

WEIGHTS = 50_000
SERVERS = 4
TIMEOUT_S = 600.0


def _under_fire(run: ServedRun, service: PrivateServer, updates: int) -> tuple[int, int]:
    """Bring all updates, a few at a time, and kill servers and the store meanwhile; returns how many of each were
    killed.
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
                run.bring(brought, noise(brought + 1, WEIGHTS))
                brought += 1
            if brought - run.waiting() >= next_kill_at:  # by progress, so that it is as hard on a fast machine
                next_kill_at += chance.randint(5, 25)
                if chance.random() < 0.3:
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


def _check(run: ServedRun, updates: int) -> None:
    """Each update has a row and a version of its own, and the weights are their replay. Where a server is killed
    between its fold and its row, others fold on, and the store then forgets it all, that version is given to nobody.
    """
    rows = applied(run.folder.path)
    versions = {update.version for update in rows}
    assert len({update.key for update in rows}) == len(rows) == len(versions) == updates
    assert run.store.version() == max(versions)
    np.testing.assert_array_equal(run.store.read()[1], run.replayed())


@pytest.mark.parametrize("updates", [200, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_four_servers_over_a_redis_that_forgets_end_with_a_replay_of_the_journal(
    short_folder: Path, tmp_path: Path, updates: int
) -> None:
    with start_redis(short_folder) as redis:
        run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), redis.url)
        killed = _under_fire(run, redis, updates)
        print(f"{updates} updates over Redis: {killed[0]} servers and Redis {killed[1]} times killed")
        _check(run, updates)
