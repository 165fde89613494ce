"""Several parameter servers on one run folder, killed at random together with their store: nothing is lost or counted twice."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.store_servers import start_mariadb, start_redis
from vcdl.job import Job, save_job
from vcdl.models.footprint import Footprint
from vcdl.prepared import Prepared
from vcdl.rules import Update, VcAsgd
from vcdl.run_folder import RunFolder
from vcdl.snapshots import Snapshots
from vcdl.stores.open import open_store, store_settings
from vcdl.stores.private_servers import PrivateServer
from vcdl.weights import Layout, Variable, Vector, read_weights, write_weights
from vcdl.workunit import Normalisation, UpdateHeader, Workunit

WEIGHTS = 50_000
SHARDS = 50
SERVERS = 4
ALPHA = 0.9
MARK = 100
"""Weights in the block that shows whether an update is in the weights."""
PATIENCE_S = 600.0


class ServedRun:
    """A run folder without a grid: uploads appear in it as clients would bring them."""

    def __init__(self, folder: Path, store_url: str, consistency: str, marked: bool = False) -> None:
        """`marked`: the upload of subtask k is not noise but zero outside a block of its own, so that it shows in the weights."""
        self.marked = marked
        self.folder = RunFolder(folder)
        self.folder.create()
        self.job = Job.model_validate(
            {
                "name": "fire",
                "model": {"builtin": "mlp"},
                "data": {"dataset": "digits", "shards": SHARDS},
                "update": {"alpha": ALPHA},
                "validate": {"every": "epoch"},
                "store": {"url": store_url, "consistency": consistency},
            }
        )
        save_job(self.job, self.folder.job_file)
        layout = Layout((Variable("w", (WEIGHTS,), 0),))
        self.prepared = Prepared((100,) * SHARDS, False, Normalisation(), layout, WEIGHTS**0.5, f"fire-{folder.name}", Footprint(0.0, 0.0, WEIGHTS))
        self.prepared.write(self.folder)
        self.folder.kept_uploads.mkdir()
        self.initial = np.zeros(WEIGHTS, np.float32) if marked else _noise(0)
        self.store = open_store(store_settings(self.job, self.folder), self.prepared.store_key, WEIGHTS)
        self.store.create(self.initial)
        Snapshots(self.folder, self.store, self.job.name, layout.fingerprint).keep(0, self.initial)

    def bring(self, number: int) -> None:
        """The upload of the subtask `number`."""
        training = self.prepared.training(self.job)
        unit = Workunit(self.job.name, number // SHARDS + 1, number % SHARDS, 0, 0, 1, training)
        weights = np.zeros(WEIGHTS, np.float32) if self.marked else _noise(number + 1)
        if self.marked:
            weights[number * MARK : (number + 1) * MARK] = 1
        header = UpdateHeader(self.job.name, unit.name, 0, self.prepared.layout.fingerprint, 100, 1.0, 1.0, 1.0)
        write_weights(self.folder.uploads / f"{unit.name}.h5", weights, header.to_json())

    def waiting(self) -> int:
        return sum(1 for _ in self.folder.uploads.glob("*.h5"))

    def replayed(self) -> Vector:
        """Version 0 with the journal's updates folded in, one after the other in the order of their versions."""
        weights = self.initial.copy()
        for update in sorted(applied(self.folder.path), key=lambda update: update.version):
            client, _ = read_weights(self.folder.kept_upload(update.version, update.workunit), WEIGHTS)
            VcAsgd(ALPHA).apply(weights, Update(client, 1, update.staleness, update.samples, update.fraction))
        return weights


def _noise(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(WEIGHTS).astype(np.float32)


@contextmanager
def _servers(folder: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    running = [_start_server(folder) for _ in range(SERVERS)]
    try:
        yield running
    finally:
        for server in running:
            server.kill()
            server.communicate()


def _start_server(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "vcdl.parameter_server", str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _under_fire(run: ServedRun, service: PrivateServer, updates: int, store_dies: bool) -> tuple[int, int]:
    """Bring all updates, a few at a time, and kill servers and store meanwhile; returns how many of each were killed."""
    chance = random.Random(1)
    killed_servers = killed_stores = brought = 0
    next_kill_s = time.monotonic() + 2
    deadline_s = time.monotonic() + PATIENCE_S
    with _servers(run.folder.path) as servers:
        while brought < updates or run.waiting():
            assert time.monotonic() < deadline_s, f"{run.waiting()} uploads still wait"
            while brought < updates and run.waiting() < 16:
                run.bring(brought)
                brought += 1
            if time.monotonic() >= next_kill_s:
                next_kill_s = time.monotonic() + chance.uniform(0.5, 2.0)
                if store_dies and chance.random() < 0.3:
                    service.kill()
                    time.sleep(0.3)
                    service.start()
                    killed_stores += 1
                else:
                    victim = chance.randrange(SERVERS)
                    servers[victim].kill()
                    servers[victim].communicate()
                    servers[victim] = _start_server(run.folder.path)
                    killed_servers += 1
            time.sleep(0.01)
    return killed_servers, killed_stores


def _check_strong(run: ServedRun, updates: int) -> None:
    assert sorted(update.version for update in applied(run.folder.path)) == list(range(1, updates + 1))
    assert len({update.key for update in applied(run.folder.path)}) == updates
    version, weights = run.store.read()
    assert version == updates
    np.testing.assert_array_equal(weights, run.replayed())


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("updates", [200, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_four_servers_over_a_redis_that_forgets_end_with_a_replay_of_the_journal(
    short_folder: Path, tmp_path: Path, updates: int
) -> None:
    with start_redis(short_folder) as redis:
        run = ServedRun(tmp_path / "run", redis.url, "strong")
        killed = _under_fire(run, redis, updates, store_dies=True)
        print(f"{updates} updates over Redis: {killed[0]} servers and Redis {killed[1]} times killed")
        _check_strong(run, updates)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_four_servers_over_a_mariadb_that_is_killed_end_with_a_replay_of_the_journal(
    short_folder: Path, tmp_path: Path
) -> None:
    with start_mariadb(short_folder) as mariadb:
        run = ServedRun(tmp_path / "run", mariadb.url, "strong")
        killed = _under_fire(run, mariadb, 2000, store_dies=True)
        print(f"2000 updates over MariaDB: {killed[0]} servers and MariaDB {killed[1]} times killed")
        _check_strong(run, 2000)


def test_lost_updates_of_an_eventual_store_are_counted(short_folder: Path, tmp_path: Path) -> None:
    with start_redis(short_folder) as redis:
        run = ServedRun(tmp_path / "run", redis.url, "eventual", marked=True)
        _under_fire(run, redis, 200, store_dies=False)
        assert sorted(update.version for update in applied(run.folder.path)) == list(range(1, 201))
        version, weights = run.store.read()
        assert version == 200
        present = sum(bool(weights[number * MARK]) for number in range(200))
        print(f"{run.store.lost_updates()} of 200 updates were overwritten")
        assert run.store.lost_updates() == 200 - present
