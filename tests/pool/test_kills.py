"""Pilots and drivers that are killed before each of their acts in the shared folder, and a folder that is stale."""

import errno
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.pool import light_pilots
from tests.pool.light_pilots import SIZE, Pool, subtasks
from tests.served_run import SHARDS, ServedRun
from vcdl.errors import GridUnavailable
from vcdl.journal.events import WorkunitFailed
from vcdl.pool.grid import LEASE_S
from vcdl.pool.mailboxes import PoolFolder

EPOCHS, KILLS = 1, 40
_HELD = re.compile(r"^/proc/self/fd/\d+")


class Killed(BaseException):
    """The process is no more."""


class Fate:
    """What happens at one of the next acts in the shared folder; one hook of Python's, as none can be removed."""

    ACTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.rmdir", "os.link", "os.utime"})
    """In the class, since the module's names are gone when an interpreter that ends still calls its hooks."""
    acts_left = -1
    folder = ""
    error: BaseException | None = None
    seen: Counter[tuple[str, str]] | None = None
    """The acts so far, where they are counted."""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in self.ACTS or (self.seen is None and self.acts_left < 0):
            return
        place = _HELD.sub(lambda found: os.readlink(found[0]), str(arguments[0]))
        if not place.startswith(self.folder):
            return
        if self.seen is not None:
            self.seen[event, place] += 1
        if self.acts_left < 0:
            return
        self.acts_left -= 1
        if self.acts_left < 0 and self.error is not None:
            raise self.error


FATE = Fate()
sys.addaudithook(FATE)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    served = ServedRun.new(tmp_path / "run", np.ones(SIZE, np.float32), "")
    FATE.folder = str(PoolFolder.of(served.folder.path).path)
    made = Pool(served, tmp_path, epochs=EPOCHS)
    yield made
    FATE.acts_left = -1


@contextmanager
def fate(acts: int, error: BaseException) -> Iterator[None]:
    FATE.acts_left, FATE.error = acts, error
    try:
        yield
    finally:
        FATE.acts_left = -1


def ends_well(pool: Pool) -> None:
    expected = [(epoch, shard) for epoch in range(1, EPOCHS + 1) for shard in range(SHARDS)]
    assert subtasks([update.workunit for update in applied(pool.served.folder.path)]) == expected
    assert np.array_equal(pool.loop.snapshots.store.read()[1], pool.replayed())


@pytest.mark.slow
@pytest.mark.parametrize("side", ["pilot", "driver"])
def test_either_side_may_be_killed_before_each_of_its_acts(
    side: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light_pilots, "TIMEOUT_S", 20.0)  # subtasks are also taken back
    pool.start()
    dice, acts, kills, left = random.Random(1), 0, 0, 0
    name = "p0"
    pool.fly(name)
    while pool.loop.ended is None:
        pool.clock.now_s += pool.tick_s
        light: Any = pool.pilots[name].worker
        light.busy = dice.random() < 0.03 if not light.busy else dice.random() > 0.05  # longer than the time limit
        try:
            for turn in ("pilot", "driver"):
                with fate(left if turn == side else -1, Killed()):
                    if turn == "driver":
                        pool_steps(pool)
                    elif not pool.pilots[name].step(0):
                        raise Killed
                    left = FATE.acts_left if turn == side else left
        except Killed:
            kills, acts = kills + 1, acts + 1
            left = acts if kills < KILLS else -1
            if side == "driver":
                pool.start()
            else:
                del pool.pilots[name]
                pool.clock.now_s += LEASE_S + 1
                name = f"p{kills}"
                pool.fly(name)
    assert kills == KILLS
    ends_well(pool)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOSPC])
def test_a_shared_folder_whose_acts_fail_now_and_then_costs_no_subtask(number: int, pool: Pool) -> None:
    run = pool.served.folder.path
    pool.fly("a")
    for acts in range(2000):
        pool.clock.now_s += pool.tick_s
        for turn, FATE.folder in ((pilot_steps, str(run)), (pool_steps, str(run / "pool"))):  # pilots also fetch files
            with fate(acts % 40, OSError(number, "as the file server says", FATE.folder)), suppress(GridUnavailable):
                turn(pool)
        if pool.loop.ended is not None:
            break
    ends_well(pool)
    assert not [row for row in pool.loop.journal.read() if isinstance(row.event, WorkunitFailed)]


def pilot_steps(pool: Pool) -> None:
    for pilot in list(pool.pilots.values()):
        assert pilot.step(0) or pilot.is_over, pilot.why_left


def pool_steps(pool: Pool) -> None:
    """The run's turn alone."""
    pilots, pool.pilots = pool.pilots, {}
    try:
        pool.step()
    finally:
        pool.pilots = pilots


def test_what_a_waiting_pilot_asks_of_the_folder_does_not_depend_on_the_others(pool: Pool) -> None:
    asked = {}
    for others in (0, 1000):
        for number in range(others):
            PoolFolder.of(pool.served.folder.path).mailbox(f"other{number}").make()
        pilot = pool.fly(f"alone{others}")
        for _ in range(3):
            pilot.step(0)
        counted = acts_of(pilot)
        asked[others] = counted
        assert sum(counted.values()) <= 60 * 4
        assert not [path for act, path in counted if act == "os.listdir" and not path.endswith(pilot.name)]
    assert sum(asked[0].values()) == sum(asked[1000].values())


def acts_of(pilot: Any) -> Counter[tuple[str, str]]:
    """A pilot's acts in the shared folder in a minute without work, by what and where."""
    seen: Counter[tuple[str, str]] = Counter()
    FATE.seen = seen
    for _ in range(60):
        pilot.clock.now_s += 1
        assert pilot.step(0)
    FATE.seen = None
    return seen
