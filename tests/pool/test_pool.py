"""A job over pilots that come, go and vanish: each subtask counts once, to the last bit."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.full_disk import disk_of
from tests.manual_clock import Clock
from tests.pool.light_pilots import SIZE, LightWorker, Pool, subtasks
from tests.served_run import SHARDS, ServedRun
from vcdl.errors import GridError
from vcdl.journal.events import StopReason, WorkunitFailed, WorkunitSent
from vcdl.pool.grid import LEASE_S, PoolGrid
from vcdl.pool.mailboxes import Mailbox, PoolFolder
from vcdl.pool.messages import Driver
from vcdl.trust.kept_hosts import read_hosts
from vcdl.wire.workunit import OUTPUT_FILE

EACH_ONCE = [(epoch, shard) for epoch in (1, 2) for shard in range(SHARDS)]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    served = ServedRun.new(tmp_path / "run", np.ones(SIZE, np.float32), "")
    return Pool(served, tmp_path)


def ends_well(pool: Pool) -> None:
    assert pool.loop.ended is StopReason.EPOCHS
    assert subtasks([update.workunit for update in applied(pool.served.folder.path)]) == EACH_ONCE
    assert np.array_equal(pool.loop.snapshots.store.read()[1], pool.replayed())


@pytest.mark.slow
def test_pilots_train_a_job_and_leave_at_its_end(pool: Pool) -> None:
    for name in "abc":
        pool.fly(name)
    pool.run()
    ends_well(pool)
    sent = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitSent)]
    assert subtasks([event.workunit for event in sent]) == EACH_ONCE
    assert {event.host for event in sent} == {"a", "b", "c"}
    for _ in range(3):
        for pilot in pool.pilots.values():
            pilot.step(0)
        pool.clock.now_s += 5
    assert pool.said == ["the job is over"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_hundred_pilots_half_of_which_vanish_each_hour(pool: Pool, seed: int) -> None:
    dice, came = random.Random(seed), 100
    pool.tick_s = 20.0
    for number in range(came):
        pool.fly(f"p{number}", busy=True)
    for _ in range(3000):
        for name, pilot in list(pool.pilots.items()):
            light: Any = pilot.worker
            light.busy = dice.random() > 0.05
            if dice.random() < 0.5 * pool.tick_s / 3600:
                del pool.pilots[name]
                came += 1
                pool.fly(f"p{came}", busy=True)
        if dice.random() < 0.02:
            pool.start()
        pool.step()
        if pool.loop.ended is not None:
            break
    assert came > 102
    ends_well(pool)


@pytest.mark.slow
def test_each_pilot_has_its_turn_when_there_are_more_than_subtasks(pool: Pool) -> None:
    pool.epochs = 6
    pool.start()
    for number in range(150):
        pool.fly(f"p{number}")
    pool.run()
    counts = Counter(update.host for update in applied(pool.served.folder.path))
    assert len(counts) == 150
    assert max(counts.values()) <= 3


@pytest.mark.slow
def test_a_pilot_that_comes_back_after_its_lease_is_superseded(pool: Pool) -> None:
    late = pool.fly("late", busy=True)
    while "late" not in {task.host for task in pool.grid.running()}:
        pool.step()
    sleeping = pool.pilots.pop("late")
    pool.fly("other")
    pool.clock.now_s += LEASE_S + 1
    for _ in range(5):
        pool.step()
    light: Any = late.worker
    light.busy = False
    pool.pilots["late"] = sleeping
    pool.run()
    ends_well(pool)
    assert any("given this pilot up" in words for words in pool.said)


@pytest.mark.slow
def test_what_a_pilot_hands_in_while_nobody_drives_counts(pool: Pool) -> None:
    pilot = pool.fly("a", busy=True)
    while not pool.grid.running():
        pool.step()
    workunit = pool.grid.running()[0].workunit
    light: Any = pilot.worker
    light.busy = False
    for _ in range(5):  # the run's process is gone
        pool.clock.now_s += 1
        pilot.step(0)
    pool.start()
    pool.step()
    assert workunit in [update.workunit for update in applied(pool.served.folder.path)]
    pool.run()
    ends_well(pool)


def test_a_pilot_that_is_told_to_go_hands_in_its_part(pool: Pool) -> None:
    pilot = pool.fly("a", busy=True)
    while not pool.grid.running():
        pool.step()
    pilot.leave()
    pool.step()
    pool.step()
    (update,) = applied(pool.served.folder.path)
    assert update.fraction == 0.5
    assert not pool.pilots
    assert not pool.grid.running()


def test_a_pilot_that_is_told_to_go_hands_in_its_part_over_a_slow_link_as_well(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends its update in pieces, as through a service, for longer than several heartbeats are apart."""
    pilot = pool.fly("a", busy=True)
    while not pool.grid.running():
        pool.step()
    whole, pieces = Mailbox.end, iter(range(40))
    monkeypatch.setattr(Mailbox, "end", lambda *ending: next(pieces, None) is None and whole(*ending))
    pilot.leave()
    for _ in range(45):
        pool.step()
    (update,) = applied(pool.served.folder.path)
    assert update.fraction == 0.5
    assert not pool.pilots
    assert not pool.said


def test_a_workunit_with_which_pilots_vanish_fails_in_words(pool: Pool) -> None:
    for name in "abc":
        pool.fly(name, busy=True)
        while name not in {task.host for task in pool.grid.running()}:
            pool.step()
        del pool.pilots[name]
        pool.clock.now_s += LEASE_S + 1
        pool.step()
    pool.fly("d", busy=True)
    for _ in range(4):
        pool.step()
    failed = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitFailed)]
    assert any(event.reason.startswith("3 pilots vanished with it, the last was c") for event in failed)


def test_a_task_that_waits_on_a_busy_pilots_desk_goes_to_one_that_is_idle(pool: Pool) -> None:
    pool.epochs, pool.late_after = 1, None
    pool.start()
    pool.fly("slow", busy=True)
    for _ in range(5):
        pool.step()
    assert pool.grid.waiting == 1
    pool.fly("fast")
    for _ in range(200):
        pool.step()
    sent = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitSent)]
    assert [event.host for event in sent].count("slow") == 1
    assert len({event.workunit for event in sent}) == SHARDS
    assert len(applied(pool.served.folder.path)) == SHARDS - 1


@pytest.mark.slow
@pytest.mark.parametrize(("late_after", "ends_within_s"), [(1.5, 200.0), (None, None)])
def test_a_subtask_that_is_late_is_trained_by_an_idle_pilot_as_well(
    pool: Pool, late_after: float | None, ends_within_s: float | None
) -> None:
    """A pilot that is heard of, and is not through with what takes the others some seconds."""
    pool.epochs, pool.late_after = 1, late_after
    pool.start()
    for name in "abc":
        pool.fly(name)
    while len(applied(pool.served.folder.path)) < 8:
        pool.step()
    slow: Any = pool.pilots["a"].worker
    slow.busy = True
    began_s = pool.clock.now_s
    if ends_within_s is None:
        for _ in range(400):
            pool.step()
        assert pool.loop.ended is None
        return
    pool.run()
    assert pool.clock.now_s - began_s < ends_within_s
    assert len({update.workunit for update in applied(pool.served.folder.path)}) == SHARDS
    events = [row.event for row in pool.loop.journal.read()]
    hosts = Counter(event.workunit for event in events if isinstance(event, WorkunitSent))
    assert max(hosts.values()) == 2, "two pilots had the late one"
    assert not any(isinstance(event, WorkunitFailed) for event in events)


def test_a_failure_has_the_workers_words(pool: Pool) -> None:
    pool.fly("a", fails_with="the shard is damaged")
    for _ in range(6):
        pool.step()
    failed = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitFailed)]
    assert failed[0].reason == "the shard is damaged"


@pytest.mark.slow
def test_a_subtask_has_a_time_limit(pool: Pool) -> None:
    pilot = pool.fly("a", busy=True)
    pool.tick_s = 50
    for _ in range(20):
        pool.step()
    failed = [row.event for row in pool.loop.journal.read() if isinstance(row.event, WorkunitFailed)]
    assert failed[0].reason == "no result after 600 s (grid > timeout_s)"
    light: Any = pilot.worker
    light.busy = False
    pool.run()
    ends_well(pool)


@pytest.mark.slow
def test_hostile_names_and_messages_are_passed_over(pool: Pool) -> None:
    folder = PoolFolder.of(pool.served.folder.path)
    heartbeats = folder.path / "bell"
    for name in ("..json", "a b.json", "x" * 120 + ".json", "a.txt", "b.json", "huge.json"):
        (heartbeats / name).write_bytes(b"{" * 100)
    (heartbeats / "c.json").write_bytes(b'{"pilot": "../../etc", "beat": 1}')
    (heartbeats / "e.json").write_bytes(b'{"pilot": "e\xff", "beat": 1}')  # as half of a write on a network disk is
    (heartbeats / "f.json").write_bytes(b'{"pilot": "f", "beat": 1, "more": ' + b"[" * 100_000)
    (heartbeats / "g.json").write_bytes(b'{"pilot": "g", "beat": 1, "fraction": -1e300}')
    (heartbeats / "folder.json").mkdir()
    (heartbeats / "d.json").symlink_to("/dev/zero")
    (folder.mailboxes / "..hidden").mkdir()
    pool.fly("a")
    pool.run()
    ends_well(pool)
    assert not list(heartbeats.glob("[!.]*"))


@pytest.mark.slow
def test_the_tasks_of_a_pilot_that_waits_start_from_the_newest_weights(pool: Pool) -> None:
    for name in "abcd":
        pool.fly(name)
    pool.run()
    stale = [update.staleness for update in applied(pool.served.folder.path)]
    assert max(stale) <= 2 * 4
    assert any(
        update.base_version > int(update.workunit.rpartition("_v")[2]) for update in applied(pool.served.folder.path)
    )


def test_two_processes_on_two_machines_do_not_drive_one_run(pool: Pool) -> None:
    folder = PoolFolder.of(pool.served.folder.path)
    folder.write_driver(Driver("other", "elsewhere", 7, 1, "running", LEASE_S, 0.1))
    pool.clock.now_s += 10
    with pytest.raises(GridError, match="process 7 on elsewhere drives"):
        pool.grid.wait(0)


def test_a_run_that_another_machine_drives_is_refused(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = PoolFolder.of(pool.served.folder.path)
    beats = iter(range(100))

    def beat(_seconds: float) -> None:
        folder.write_driver(Driver("other", "elsewhere", 7, next(beats), "running", LEASE_S, 0.1))

    beat(0)
    monkeypatch.setattr("vcdl.pool.announcer.time.sleep", beat)
    with pytest.raises(GridError, match="driven by process 7 on elsewhere: end it there"):
        PoolGrid(pool.served.folder, pool.served.run.job).start()


def test_a_pilot_leaves_when_nobody_drives_the_run(pool: Pool) -> None:
    pilot = pool.fly("a")
    pool.step()
    pool.clock.now_s += 601
    pilot.step(0)
    assert not pilot.step(0)
    assert "no process has driven" in pilot.why_left


@pytest.mark.slow
def test_pilots_whose_clocks_are_hours_off_train_a_job(pool: Pool) -> None:
    for name, hours in (("early", 0), ("late", 1)):
        clock = Clock()
        pool.fly(name).clock = clock  # nobody's is the run's
        clock.now_s = pool.clock.now_s + 3600 * hours
    for _ in range(3000):
        for pilot in pool.pilots.values():
            pilot.clock.now_s += pool.tick_s  # type: ignore[attr-defined]
        pool.step()
        if pool.loop.ended is not None:
            break
    ends_well(pool)
    assert {update.host for update in applied(pool.served.folder.path)} == {"early", "late"}


@pytest.mark.process
def test_a_pilot_whose_disk_is_full_gives_its_subtask_back_and_leaves_in_words(pool: Pool) -> None:
    with disk_of(1 << 20, pool.scratch / "disk") as disk:
        pilot = pool.fly("small")
        pilot.scratch = disk
        pool.served.folder.shard(0).write_bytes(b"s" * (2 << 20))
        for _ in range(100):
            pool.step()
            if not pool.pilots:
                break
    assert pilot.why_left == f"there is no room in {disk}: free some, or give --scratch"
    pool.fly("large")
    pool.run()
    ends_well(pool)


class HostileWorker(LightWorker):
    """Hands in what is no update."""

    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        folder, events = self.folder, super().wait(timeout_s)
        if folder is not None and {"event": "done"} in events:
            (folder / OUTPUT_FILE).write_bytes(b"no update")
        return events


def test_a_stranger_whose_uploads_are_refused_is_given_nothing_when_it_starts_again(tmp_path: Path) -> None:
    pool = Pool(ServedRun.new(tmp_path / "run", np.ones(SIZE, np.float32), "", trust="strangers"), tmp_path, epochs=1)
    bad = HostileWorker(pool.served.prepared.layout.fingerprint)
    for number in range(200):
        if number % 10 == 0:
            pool.pilots.pop(f"3f.bad-{number - 10}-0", None)
            pool.fly(f"3f.bad-{number}-0").worker = bad
        if number == 50:
            pool.fly("3f.good-1-2")
        pool.step()
        if number == 100:
            sent = read_hosts(pool.served.folder).hosts["3f.bad"].sent
    history = read_hosts(pool.served.folder)
    assert set(history.hosts) == {"3f.bad", "3f.good"}
    assert history.is_out("3f.bad")
    assert history.hosts["3f.bad"].sent == sent
    assert {update.host for update in applied(pool.served.folder.path)} == {"3f.good"}
