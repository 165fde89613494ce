"""A result that is in the store and not in the journal: its server was killed in between. The store's record
wins over every check.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.memory_grid import Killed
from tests.plans import a_plan
from tests.server import SIZE, Disk, Server
from vcdl.journal.events import Event, UpdateApplied, UpdateSuperseded
from vcdl.wire.workunit import subtask_name

PLAN = a_plan(shards=12)
LONG = np.full(SIZE, 30.0, np.float32)
"""Accepted beside others that are as long, refused when it is measured by weights of ones."""


def w(shard: int, attempt: int = 0) -> str:
    return f"j_{subtask_name(1, shard)}_a{attempt}_v000000"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk.new(tmp_path, PLAN)


def events(server: Server) -> list[Event]:
    return [recorded.event for recorded in server.journal.read()]


def killed_between_store_and_journal(disk: Disk) -> None:
    """What waits is in the store, and no row says so."""
    for kill_at in range(100):
        server = Server(replace(disk, initial_norm=1000.0), kill_at)
        server.journal.fuse = server.store.fuse = server.grid.fuse = server.fuse
        with pytest.raises(Killed):
            server.assimilator.run_once()
        server.grid.fuse.kill_at = server.store.fuse.kill_at = None
        version = server.store.version()
        server.close()
        if version:
            return


def test_what_a_check_would_refuse_now_gets_its_row_from_the_store(disk: Disk) -> None:
    disk.grid.bring(w(0), LONG)
    killed_between_store_and_journal(disk)
    server = Server(disk)
    server.assimilator.run_once()
    (row,) = events(server)
    assert isinstance(row, UpdateApplied)
    assert (row.workunit, row.version, row.samples) == (w(0), 1, 10)
    assert disk.grid.outcomes == {}
    server.close()


def test_when_the_upload_is_gone_the_next_attempt_brings_its_row(disk: Disk) -> None:
    """Without it the subtask would be open for ever: the store takes no other attempt at it."""
    disk.grid.bring(w(0))
    killed_between_store_and_journal(disk)
    disk.grid.outcomes.clear()
    disk.grid.bring(w(0, attempt=1))
    server = Server(disk)
    server.assimilator.run_once()
    row, superseded = events(server)
    assert isinstance(row, UpdateApplied)
    assert (row.workunit, row.version, row.base_version) == (w(0), 1, 0)
    assert isinstance(superseded, UpdateSuperseded)
    assert superseded.workunit == w(0, attempt=1)
    assert server.store.version() == 1
    server.close()
