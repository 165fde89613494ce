"""A job that has collapsed goes back to its last good version, also when its server is killed in the middle of it."""

import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.job_events import applied
from tests.loop.test_recovery import served
from tests.memory_grid import Killed, MemoryGrid
from tests.plans import a_plan
from tests.served_run import ServedRun, noise, servers
from tests.server import SIZE, Disk, Server
from tests.store_servers import on_server
from vcdl.errors import StoreLost, Unavailable
from vcdl.journal.events import (
    EpochClosed,
    HostConvicted,
    RolledBack,
    UpdateApplied,
    UpdateSuperseded,
    UploadVerified,
    WeightsPublished,
    WorkunitCancelled,
    WorkunitSent,
)
from vcdl.loop.loop import Loop
from vcdl.loop.recovery import fold_again
from vcdl.loop.rollback import roll_back, suspect_updates, take_back
from vcdl.rules.base import Rule
from vcdl.rules.damping import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.run.folder import RestoreLock
from vcdl.trust.collapse import Collapse
from vcdl.trust.host_record import HostRecord
from vcdl.trust.hosts import HostHistory
from vcdl.trust.job_trust import RollBack, TakeBack, TrustPlan
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import WorkunitName

PLAN = a_plan(shards=4, validate_every=1, epochs=8, trust=TrustPlan(rolls_back=True))
HONEST_EPOCHS = 2


def score(vector: Vector) -> float:
    """Honest weights stay within a few units of zero."""
    return 0.9 if float(np.abs(vector).max()) < 3.5 else 0.1


def play(server: Server, dice: random.Random) -> None:
    """Run the job to its end; the clients of its later epochs ruin it until it is rolled back."""
    server.start()
    for _ in range(600):
        with suppress(Unavailable):
            server.run_once()
        if server.coordinator.history.finished:
            return
        rollbacks = server.coordinator.history.rollbacks
        bases = [WorkunitName.parse(workunit).base_version for workunit in server.grid.running]
        assert not any(rolled.undoes(base) for rolled in rollbacks for base in bases), "nobody trains what is dropped"
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
    assert len({update.key for update in events if isinstance(update, UpdateApplied)}) == 32, "each subtask once"
    server.close()


CASES = pytest.mark.parametrize(
    ("rolling", "rule"),
    [
        (True, VcAsgd(alpha=0.7)),
        (False, VcAsgd(alpha=0.7)),
        (True, TrimmedMean(server_learning_rate=0.3, buffer=1, trim=0)),
        (True, FedBuff(server_learning_rate=0.9, buffer=2, staleness=Constant())),
    ],
    ids=["rolling", "epoch", "base", "state"],
)
"""Both schedules, a rule that needs the client's base, and one that keeps a state."""


@CASES
def test_a_job_that_collapsed_ends_with_good_weights(tmp_path: Path, rolling: bool, rule: Rule) -> None:
    disk = new_disk(tmp_path, rolling, rule)
    assert life(disk, None, 1) is not None
    check(disk)


@pytest.mark.sampled(2)
@pytest.mark.slow
@CASES
def test_a_job_whose_server_is_killed_around_its_rollback_goes_on(tmp_path: Path, rolling: bool, rule: Rule) -> None:
    undisturbed = Server(new_disk(tmp_path / "undisturbed", rolling, rule))
    play(undisturbed, random.Random(1))
    undisturbed.close()
    written = undisturbed.journal.rolled_back_at
    for kill_at in range(written, written + 6):  # around the event, the store and the grid
        disk = new_disk(tmp_path / str(kill_at), rolling, rule)
        assert life(disk, kill_at, 1) is None
        assert life(disk, None, kill_at) is not None
        check(disk)


def new_disk(path: Path, rolling: bool, rule: Rule) -> Disk:
    return Disk.new(path, replace(PLAN, rolling=rolling, needs_bases=rule.needs_base), rule)


# -- the store, whichever it is, and the servers at it

WEIGHTS = 100


@pytest.fixture(params=["folder", on_server("redis")])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> ServedRun:
    """Thirteen updates of three hosts. The third brought the eleventh, and the server has trained none of it again; the
    two others had made an epoch.
    """
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), url, trust="strangers")
    server, journal = served(run), run.run.journal()
    for number, host in enumerate(["a", "b", "a", "b", "a", "b", "a", "a", "b", "a", "late", "b", "a"]):
        workunit = run.bring(number, noise(number + 1, WEIGHTS))
        journal.append(WorkunitSent(workunit, host, 10))
        server.run_once()
        if number == 7:
            version = run.run.snapshots(server.store).keep_newest(durable=True)
            journal.append(EpochClosed(1, version))
    journal.append(*(UploadVerified(host, host, 13, 0.0, True, 1.0) for host in "ab"))
    return run


def go_back(run: ServedRun, *, is_again: bool = False) -> RolledBack:
    collapse = Collapse(version=10, measured=0.1, usual=0.9, to=8, is_again=is_again)
    store = run.run.store()
    with RestoreLock(run.folder).restoring():
        return roll_back(run.run, run.run.snapshots(store), run.run.journal(), collapse)


def take_late_back(run: ServedRun) -> RolledBack:
    with RestoreLock(run.folder).restoring():
        return take_back(run.run, run.run.snapshots(run.run.store()), run.run.journal(), TakeBack("late", (11,), 8))


def folded(run: ServedRun, versions: Iterable[int]) -> Vector:
    """Version 0 with these updates."""
    whole = run.initial.copy()
    updates = [row.event for row in run.run.journal().read() if isinstance(row.event, UpdateApplied)]
    for update in sorted(updates, key=lambda update: update.version):
        if update.version in versions:
            fold_again(run.run, update, whole)
    return whole


@pytest.mark.parametrize("go", [go_back, take_late_back])
def test_what_is_not_believed_is_dropped_and_the_others_folded_again(
    run: ServedRun, go: Callable[[ServedRun], RolledBack]
) -> None:
    event = go(run)
    assert (event.version, event.to, event.dropped) == (14, 8, (11,))
    assert event.host == ("late" if go is take_late_back else "")
    version, weights = run.run.store().read()
    assert version == 14
    assert weights.tobytes() == folded(run, {*range(1, 11), 12, 13}).tobytes()


def test_what_was_made_of_a_liars_weights_is_dropped_with_them_and_made_again_but_a_lie(run: ServedRun) -> None:
    server, journal = served(run), run.run.journal()
    for number, base_version in enumerate([10, 11, 12], start=13):
        run.bring(number, noise(99, WEIGHTS), base_version=base_version)
        server.run_once()
    after = {row.event.version: row.event.workunit for row in journal.read() if isinstance(row.event, UpdateApplied)}
    journal.append(HostConvicted("late", "a lie", (11,), (after[11], after[16])))
    event = take_late_back(run)
    assert (event.dropped, event.again) == ((11, 15, 16), (after[15],))
    assert [event.overtakes(version) for version in (10, 11, 16, 17)] == [False, True, True, False]
    assert server.store.read()[1].tobytes() == folded(run, {*range(1, 11), 12, 13, 14}).tobytes()


def test_where_that_has_not_helped_all_are_dropped(run: ServedRun) -> None:
    assert go_back(run, is_again=True).dropped == (9, 10, 11, 12, 13)
    assert run.run.store().read()[1].tobytes() == folded(run, range(1, 9)).tobytes()


@pytest.mark.parametrize("go", [go_back, take_late_back])
def test_where_a_kept_upload_is_gone_all_are_dropped(run: ServedRun, go: Callable[[ServedRun], RolledBack]) -> None:
    (kept,) = run.folder.kept_uploads.glob("v000012_*.h5")
    kept.unlink()
    assert go(run).dropped == (9, 10, 11, 12, 13)


def test_a_server_folds_on_from_it_and_a_store_that_forgets_gets_the_same_bits_again(run: ServedRun) -> None:
    server = served(run)
    go_back(run)
    run.bring(13, noise(99, WEIGHTS))
    assert server.run_once() == 1
    version, weights = server.store.read()
    assert version == 15
    assert weights.tobytes() == folded(run, {*range(1, 11), 12, 13, 15}).tobytes()
    run.folder.snapshot(14).unlink()  # from the good version, by all that is kept since then
    server.store.restore(0, run.initial, [])
    assert server.restore() == 5
    again = server.store.read()
    assert (again[0], again[1].tobytes()) == (version + 1, weights.tobytes())


def test_nobody_folds_into_a_store_that_has_not_followed(run: ServedRun) -> None:
    """The one that decided it was killed before it did it."""
    server = served(run)
    run.run.journal().append(RolledBack(14, 8, (11,), 10, 0.1, 0.9))
    run.bring(13, noise(99, WEIGHTS))
    with pytest.raises(StoreLost, match="is at version 13 and the journal at 14"):
        server.run_once()
    assert run.store.version() == 13
    assert server.restore() == 4
    assert run.folder.snapshot(14).exists()
    server.run_once()
    assert server.store.read()[1].tobytes() == folded(run, {*range(1, 11), 12, 13, 15}).tobytes()


def test_what_started_from_dropped_weights_comes_too_late(run: ServedRun) -> None:
    server = served(run)
    go_back(run)
    workunit = run.bring(13, noise(99, WEIGHTS), base_version=12)
    assert server.run_once() == 1
    last = run.run.journal().read()[-1].event
    assert isinstance(last, UpdateSuperseded)
    assert last.workunit == workunit
    assert server.store.version() == 14
    assert run.waiting() == 0


def test_what_began_with_dropped_weights_in_place_of_its_own_is_made_again(run: ServedRun) -> None:
    server, journal = served(run), run.run.journal()
    run.run.snapshots(server.store).keep_newest()
    journal.append(WeightsPublished(13))
    go_back(run)
    workunit = run.bring(13, noise(99, WEIGHTS), base_version=8, began_with=13)
    assert server.run_once() == 1
    cancelled, superseded = [row.event for row in journal.read()[-2:]]
    assert isinstance(cancelled, WorkunitCancelled)
    assert isinstance(superseded, UpdateSuperseded)
    assert cancelled.workunit == superseded.workunit == workunit
    assert server.store.version() == 14


@pytest.mark.parametrize("action", [RollBack(Collapse(10, 0.1, 0.9, to=8, is_again=False)), TakeBack("late", (11,), 8)])
def test_what_another_process_has_done_meanwhile_is_not_done_again(run: ServedRun, action: RollBack | TakeBack) -> None:
    loop = Loop.of(run.run, MemoryGrid(run.folder.uploads, run.run.layout.fingerprint))
    assert loop.start_or_resume()
    loop.generator._roll_back(action)  # decided by what the journal said before
    loop.close()
    assert not any(isinstance(row.event, RolledBack) for row in run.run.journal().read())


@pytest.mark.process
def test_servers_that_fold_meanwhile_go_on_with_the_new_version_and_lose_nothing(run: ServedRun) -> None:
    with servers(run.folder.path, 2):
        for number in range(13, 40):
            run.bring(number, noise(number + 1, WEIGHTS))
            if number == 25:
                event = go_back(run, is_again=True)
            time.sleep(0.02)
        give_up_s = time.monotonic() + 60
        while run.waiting() and time.monotonic() < give_up_s:
            time.sleep(0.05)
    events = [row.event for row in run.run.journal().read()]
    versions = {update.version for update in events if isinstance(update, UpdateApplied)}
    assert versions == set(range(1, 42)) - {event.version}
    version, weights = run.run.store().read()
    assert version == 41
    assert weights.tobytes() == folded(run, versions - set(event.dropped)).tobytes()


def updates_of(*hosts: str) -> list[UpdateApplied]:
    """Versions 1, 2 …, one upload of each host, all started from version 0."""
    return [
        structs.replace(applied(f"e1 s{version}", version), host=host, base_version=0)
        for version, host in enumerate(hosts, start=1)
    ]


def dropped(updates: list[UpdateApplied], vouched: dict[str, int]) -> list[int]:
    hosts = HostHistory(hosts={host: HostRecord(host, vouched=version) for host, version in vouched.items()})
    return [update.version for update in suspect_updates(updates, hosts)]


def test_where_all_are_believed_the_cause_is_not_known_and_all_are_dropped() -> None:
    assert dropped(updates_of("a", "b", "c"), dict.fromkeys("abc", 9)) == [1, 2, 3]


def test_what_is_not_believed_and_what_started_from_it_is_dropped() -> None:
    updates = updates_of("a", "b", "c", "d", "e")
    assert dropped(updates, dict.fromkeys("abde", 9)) == [3]
    assert dropped(updates, {**dict.fromkeys("abce", 9), "d": 3}) == [4], "later than the one that was trained again"
    updates[4] = structs.replace(updates[4], base_version=3)
    assert dropped(updates, dict.fromkeys("abde", 9)) == [3, 5]
