"""A job that has collapsed goes back to its last good version, also when its server is killed in the middle of it."""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.memory_grid import Killed
from tests.server import SIZE, Disk, Server
from vcdl.errors import Unavailable
from vcdl.journal.events import RolledBack, UpdateApplied
from vcdl.loop.plan import Plan
from vcdl.rules.base import Rule
from vcdl.rules.downpour import Downpour
from vcdl.rules.fedasync import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import WorkunitName

PLAN = Plan(
    job="j",
    seed=1,
    shards=4,
    rolling=True,
    validate_every=1,
    has_test=False,
    epochs=7,
    target_accuracy=None,
    wall_time_s=None,
    patience_epochs=None,
    tries=3,
    rolls_back=True,
)
HONEST_EPOCHS = 2


def score(vector: Vector) -> float:
    """Honest weights stay within a few units of zero."""
    return 0.9 if float(np.abs(vector).max()) < 3.5 else 0.1


def play(server: Server, dice: random.Random) -> range:
    """Run the job to its end; the clients of its later epochs ruin it until it is rolled back.

    Returns the server's steps in the round of the first rollback.
    """
    server.start()
    rolling_back = range(0)
    for _ in range(600):
        before = server.fuse.steps
        with suppress(Unavailable):
            server.run_once()
        if server.coordinator.history.rollbacks and not rolling_back:
            rolling_back = range(before, server.fuse.steps)
        if server.coordinator.finished:
            return rolling_back
        server.evaluate(score)
        for workunit in server.grid.running:
            name = WorkunitName.parse(workunit)
            history = server.coordinator.history
            is_attacked = len(history.closed) >= HONEST_EPOCHS and name.base_version > history.end_of(HONEST_EPOCHS)
            if is_attacked and not history.rollbacks:
                server.grid.brought[workunit] = np.full(SIZE, 9.0, np.float32)
            if dice.randrange(3):
                server.grid.bring(workunit)
    raise AssertionError("the job does not come to its end")


def life(disk: Disk, kill_at: int | None, seed: int) -> int | None:
    """One life of the server; returns its steps, None when it was killed."""
    server = Server(disk, kill_at)
    try:
        play(server, random.Random(seed))
        return server.fuse.steps
    except Killed:
        disk.grid.forget()
        return None
    finally:
        server.close()


def check(disk: Disk) -> None:
    server = Server(disk)
    server.generator.follow()
    server.check_store_and_journal_agree()
    events = [row.event for row in server.journal.read()]
    rolled = [event for event in events if isinstance(event, RolledBack)]
    assert rolled
    assert score(server.store.read()[1]) == 0.9
    later = [event for event in events if isinstance(event, UpdateApplied) and event.version > rolled[-1].version]
    assert not any(one.undoes(update.base_version) for update in later for one in rolled)
    assert len({update.key for update in events if isinstance(update, UpdateApplied)}) == 28, "each subtask once"
    server.close()


CASES = pytest.mark.parametrize(
    ("rolling", "rule"),
    [(True, VcAsgd(0.7)), (False, VcAsgd(0.7)), (True, Downpour(0.3)), (True, FedBuff(0.9, 3, Constant()))],
    ids=["rolling", "epoch", "base", "state"],
)
"""Both schedules, a rule that needs the client's base, and one that keeps a state."""


@CASES
def test_a_job_that_collapsed_ends_with_good_weights(tmp_path: Path, rolling: bool, rule: Rule) -> None:
    disk = new_disk(tmp_path, rolling, rule)
    assert life(disk, None, 1) is not None
    check(disk)


@CASES
def test_a_job_whose_server_is_killed_around_its_rollback_goes_on(tmp_path: Path, rolling: bool, rule: Rule) -> None:
    undisturbed = Server(new_disk(tmp_path / "undisturbed", rolling, rule))
    steps = play(undisturbed, random.Random(1))
    undisturbed.close()
    assert len(steps) >= 4, "the event, the store, the grid"
    for kill_at in steps[-10:]:
        disk = new_disk(tmp_path / str(kill_at), rolling, rule)
        assert life(disk, kill_at, 1) is None
        assert life(disk, None, kill_at) is not None
        check(disk)


def new_disk(path: Path, rolling: bool, rule: Rule) -> Disk:
    return Disk.new(path, replace(PLAN, rolling=rolling, needs_bases=rule.needs_base), rule)
