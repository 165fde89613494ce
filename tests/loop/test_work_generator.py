"""The coordinator's actions carried out on real files, and a whole job killed between any two steps of its server."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.examples import some
from tests.memory_grid import FillingDisk, Fuse, Killed
from tests.plans import a_plan
from tests.server import RULE, SIZE, TRAINING, Disk, Server
from vcdl.errors import RunFolderError, RunFolderFull, Unavailable
from vcdl.errors.refusal import Refusal
from vcdl.job.lr_schedule import SubtaskRate
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    RunFinished,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitSent,
)
from vcdl.journal.journal import Journal
from vcdl.loop.plan import Publishing
from vcdl.rules.base import Rule
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.wire.params import ParamsHeader
from vcdl.wire.taken import is_taken, upload_mark
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import PLAIN, Named, Transport, WorkunitName, subtask_name

PLAN = a_plan(validate_every=2, has_test=True, epochs=2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(Disk.new(tmp_path, PLAN))
    yield server
    server.close()


def events(server: Server) -> list[Event]:
    return [recorded.event for recorded in server.journal.read()]


def test_a_workunit_is_announced_and_handed_over_with_its_files(server: Server) -> None:
    server.grid.wanted = 2
    server.generator.run_once(0.0)
    created = [event.workunit for event in events(server) if isinstance(event, WorkunitCreated)]
    assert created == server.grid.ever_submitted
    assert len(created) == 2
    staged = server.grid.submitted[created[0]]
    workunit = staged.workunit
    assert (workunit.job, workunit.epoch, workunit.attempt, workunit.base_version) == ("j", 1, 0, 0)
    assert workunit.training == TRAINING
    assert staged.shard == server.disk.folder.shard(workunit.shard)
    assert staged.model == server.disk.folder.model_file
    vector, header = read_weights(staged.params, SIZE)
    assert vector.tolist() == [1.0] * SIZE
    assert ParamsHeader.from_json(header) == ParamsHeader("j", 0, server.grid.layout)


def test_slots_that_wait_while_a_job_grows_are_no_reason_for_second_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(Disk.new(tmp_path, replace(PLAN, shards=30, grows_over=0.5)))
    asked: list[bool] = []
    monkeypatch.setattr(server.grid, "replicate_late", lambda *, queue_empty: asked.append(queue_empty))
    server.grid.wanted = 20
    server.generator.run_once(0.0)
    assert (len(server.grid.ever_submitted), asked) == (10, [False])
    server.close()


def test_every_subtask_and_attempt_trains_with_a_seed_of_its_own_and_always_the_same(tmp_path: Path) -> None:
    seeds: dict[str, set[int]] = {}
    for again in ("one", "two"):
        server = Server(Disk.new(tmp_path / again, PLAN))
        server.grid.wanted = 3
        server.generator.run_once(0.0)
        server.grid.give_up(server.grid.ever_submitted[0])
        server.run_once()
        for name, staged in server.grid.submitted.items():
            seeds.setdefault(name, set()).add(staged.workunit.seed)
        server.close()
    assert len(seeds) == 3
    assert all(len(of_one) == 1 for of_one in seeds.values())
    assert len(set.union(*seeds.values())) == 3


def test_what_was_announced_and_not_handed_over_is_handed_over_by_the_next_server(server: Server) -> None:
    server.generator.run_once(0.0)
    before = dict(server.grid.submitted)
    server.disk.grid.forget()
    again = Server(server.disk)
    again.start()
    again.generator.run_once(0.0)
    assert again.grid.submitted == before, "to the last field, the seed included"
    again.close()


def test_what_is_handed_over_again_has_the_rate_that_the_journal_tells(tmp_path: Path) -> None:
    server = Server(Disk.new(tmp_path, replace(PLAN, epochs=1, rate=SubtaskRate("linear", end_factor=0.1))))
    server.grid.wanted = 3
    server.generator.run_once(0.0)
    before = dict(server.grid.submitted)
    server.disk.grid.forget()
    again = Server(replace(server.disk, plan=PLAN))  # which would give all of them another rate
    again.start()
    again.generator.run_once(0.0)
    assert again.grid.submitted == before
    assert {event.workunit: event.rate for event in events(again) if isinstance(event, WorkunitCreated)} == {
        name: pytest.approx(staged.workunit.training.learning_rate / 0.1) for name, staged in before.items()
    }
    again.close()


def test_where_hosts_remember_a_workunit_tells_which_uploads_count(tmp_path: Path) -> None:
    server = Server(Disk.new(tmp_path, replace(PLAN, hosts_remember=True)))
    server.start()
    server.grid.wanted = 1
    server.run_once()
    (first,) = server.grid.running
    server.grid.bring(first, train_s=1.5)
    server.run_once()
    (second,) = server.grid.running
    told, name, mark = server.grid.submitted[second].workunit, WorkunitName.parse(first), upload_mark(first, 1.5)
    assert (is_taken(name, mark, told), is_taken(name, mark + 1, told)) == (True, False)
    assert is_taken(WorkunitName.parse(second), mark, told) is None, "nobody has brought it"
    server.disk.grid.forget()
    again = Server(server.disk)
    again.start()
    again.generator.run_once(0.0)
    assert again.grid.submitted[second].workunit == told, "also when it is handed over again"
    again.close()


def test_snapshots_that_nothing_refers_to_are_removed(server: Server) -> None:
    play(server, random.Random(1))
    kept = {int(path.stem[-6:]) for path in server.disk.folder.snapshots.glob("params_v*.h5")}
    assert kept == server.coordinator.versions_in_use
    (stop,) = [event for event in events(server) if isinstance(event, StopDecided)]
    assert stop.version in kept
    assert len(kept) <= 3


def test_offered_weights_stay_until_newer_ones_are_offered(tmp_path: Path) -> None:
    """Also encoded ones, which no workunit starts from: pilots and simulated clients read the file itself."""
    plan = replace(PLAN, publishing=Publishing(every_s=3.0, keeps_s=1e9))
    play(Server(Disk.new(tmp_path, plan, transport=Transport(down=Named("float16")))), random.Random(2))


def begun_with_the_first_version(server: Server) -> list[str]:
    """A server's workunits that are out with version 0, after one upload has made version 1."""
    server.start()
    server.run_once()
    server.grid.bring(server.grid.running[0])
    server.run_once()
    begun = [workunit for workunit in server.grid.running if WorkunitName.parse(workunit).base_version == 0]
    assert begun
    return begun


@pytest.mark.parametrize("rolling", [True, False])
def test_a_job_whose_snapshots_were_deleted_goes_on_from_its_newest_weights(tmp_path: Path, rolling: bool) -> None:
    server = Server(Disk.new(tmp_path, replace(PLAN, rolling=rolling, validate_every=EVERY_EPOCH)))
    begun = begun_with_the_first_version(server)
    shutil.rmtree(server.disk.folder.snapshots)
    if not rolling:
        with pytest.raises(
            RunFolderError, match=r"version 0 are damaged, or were deleted from .*.*restore a copy.*vcdl export"
        ):
            server.run_once()
        return
    server.run_once()
    assert {event.workunit for event in events(server) if isinstance(event, WorkunitCancelled)} == set(begun)
    assert {WorkunitName.parse(workunit).base_version for workunit in server.grid.running} == {1}
    play(server, random.Random(1))
    server.close()


def damage(path: Path) -> None:
    """Change one bit of the weights."""
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def test_no_client_gets_weights_that_the_disk_has_damaged(tmp_path: Path) -> None:
    """The newest are made again from the store; what began with others is made again from those. Nothing is a try."""
    disk = Disk.new(tmp_path, replace(PLAN, validate_every=EVERY_EPOCH))
    server = Server(disk)
    begun = begun_with_the_first_version(server)
    server.close()
    for version in (0, 1):
        damage(disk.folder.snapshot(version))
    again = Server(disk)
    again.start()
    again.run_once()
    assert {event.workunit for event in events(again) if isinstance(event, WorkunitCancelled)} == set(begun)
    assert {WorkunitName.parse(workunit).base_version for workunit in again.grid.running} == {1}
    weights, _ = read_weights(disk.folder.snapshot(1), SIZE)
    assert weights.tobytes() == again.store.read()[1].tobytes()
    play(again, random.Random(1))
    again.close()


def test_a_damaged_version_that_is_to_be_measured_is_no_other_version(server: Server) -> None:
    vector = server.store.read()[1]
    server.snapshots.keep(7, vector)
    damage(server.disk.folder.snapshot(7))
    assert not server.snapshots.ensure(7)
    assert not server.snapshots.has(7)


def test_a_deleted_snapshot_that_was_to_be_measured_ends_the_run_with_a_word(server: Server) -> None:
    server.start()
    server.run_once()
    for _ in range(3):
        server.grid.bring(server.grid.running[0])
        server.run_once()
    wanted = [event.version for event in events(server) if isinstance(event, EvaluationWanted)]
    assert wanted == [2, 3]
    shutil.rmtree(server.disk.folder.snapshots)
    with pytest.raises(RunFolderError, match=r"version 2 are damaged, or were deleted from .*snapshots"):
        server.run_once()
    assert server.disk.folder.snapshot(3).exists(), "the newest are made again, for `vcdl export`"


def test_a_stop_cancels_what_is_out(server: Server) -> None:
    server.coordinator._plan = replace(PLAN, wall_time_s=10.0)
    server.start()
    server.generator.run_once(0.0)
    assert server.grid.submitted
    server.generator.run_once(1e12)
    assert server.grid.submitted == {}
    assert [event.reason for event in events(server) if isinstance(event, StopDecided)] == ["wall_time"]


# -- a whole job


def play(server: Server, dice: random.Random, rounds: int = 400) -> None:
    """Run the server, its clients and its evaluator until the job is finished."""
    server.start()
    for _ in range(rounds):
        with suppress(Unavailable):  # the next round does what this one could not
            server.run_once()
        if server.coordinator.history.finished:
            return
        server.evaluate()
        offered = server.grid.offered
        assert offered is None or not server.coordinator.history.open or offered.exists(), "a client may begin with it"
        for workunit in server.grid.running:
            luck = dice.randrange(8)
            assert server.grid.submitted[workunit].params.exists(), "a client can download what it needs"
            if luck == 0:
                server.grid.give_up(workunit)
            elif luck == 1:
                server.grid.bring(workunit, np.full(SIZE, np.nan, np.float32))
            elif luck < 6:
                server.grid.bring(workunit)
    raise AssertionError("the job does not come to its end")


def check_finished(disk: Disk) -> None:
    """Whatever happened: each subtask was applied once, everything asked for was evaluated, and it all adds up."""
    server = Server(disk)
    server.generator.follow()
    assert server.coordinator.history.finished
    server.check_store_and_journal_agree()
    happened = events(server)
    applied = [WorkunitName.parse(event.workunit) for event in happened if isinstance(event, UpdateApplied)]
    counts = Counter(name.subtask for name in applied)
    assert set(counts.values()) <= {1}
    created = {event.workunit for event in happened if isinstance(event, WorkunitCreated)}
    assert created == set(disk.grid.ever_submitted)
    assert len({(name.subtask, name.attempt) for name in map(WorkunitName.parse, created)}) == len(created)
    asked = {(event.version, event.split) for event in happened if isinstance(event, EvaluationWanted)}
    assert asked == disk.evaluated
    (stop,) = [event for event in happened if isinstance(event, StopDecided)]
    assert sum(isinstance(event, RunFinished) for event in happened) == 1
    if stop.reason == "epochs":
        every = {subtask_name(epoch, shard) for epoch in (1, 2) for shard in range(disk.plan.shards)}
        assert set(counts) >= every
        assert [event.epoch for event in happened if isinstance(event, EpochClosed)][:2] == [1, 2]
    assert disk.folder.snapshot(stop.version).exists(), "what the job made"
    server.close()


def life(disk: Disk, kill_at: int | None, dice: random.Random) -> int | None:
    """One life of the server; returns its steps, None when it was killed."""
    server = Server(disk, kill_at)
    try:
        play(server, dice)
        return server.fuse.steps
    except Killed:
        disk.grid.forget()
        return None
    finally:
        server.close()


NEEDS_BASE = TrimmedMean(server_learning_rate=0.3, buffer=1, trim=0)
TRANSPORTS = [
    Transport(Named("bfloat16"), Named("int8"), compress=True),
    Transport(Named("int8", {"levels": 31}), Named("top_k", {"share": 0.5})),
    Transport(Named("float16"), Named("float32"), compress=True),
]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rolling", "rule", "transport", "kills"),
    [
        *((rolling, RULE, PLAIN, slice(0, None, 3)) for rolling in (True, False)),
        *((rolling, NEEDS_BASE, PLAIN, slice(1, None, 7)) for rolling in (True, False)),
        *((True, RULE, transport, slice(2, None, 23)) for transport in TRANSPORTS),
    ],
)
def test_a_job_killed_between_any_two_steps_of_its_server_goes_on(
    tmp_path: Path, rolling: bool, rule: Rule, transport: Transport, kills: slice
) -> None:
    """A rule that needs the base always finds it, and of encoded weights no download is left."""
    plan = replace(PLAN, rolling=rolling, needs_bases=rule.needs_base or transport != PLAIN)
    steps = life(Disk.new(tmp_path / "undisturbed", plan, rule, transport=transport), None, random.Random(1))
    assert steps is not None
    for kill_at in some(range(steps)[kills]):
        disk = Disk.new(tmp_path / str(kill_at), plan, rule, transport=transport)
        life(disk, kill_at, random.Random(1))
        if kill_at % 2:  # downloads are made again, from the snapshots
            shutil.rmtree(disk.folder.downloads, ignore_errors=True)
        assert life(disk, None, random.Random(kill_at)) is not None, "only the first life is killed"
        check_finished(disk)
        left = {path.name for path in disk.folder.downloads.glob("*")}
        assert left <= {path.name for path in disk.folder.snapshots.iterdir()}
        refused = [row.event for row in Journal.at(disk.folder.journal_file).read()]
        reasons = {event.refusal for event in refused if isinstance(event, UpdateRefused)}
        assert reasons <= {Refusal.NOT_FINITE}, "only what was made to be refused"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_job_whose_disk_is_full_now_and_then_goes_on_in_the_same_process(
    tmp_path: Path, share: float, seed: int
) -> None:
    disk = Disk.new(tmp_path, replace(PLAN, rolling=seed % 2 == 0))
    server = Server(disk)
    server.fuse = disk_that_fills = FillingDisk(random.Random(seed), share)
    play(server, random.Random(seed), rounds=2000)
    server.close()
    assert disk_that_fills.was_full > 0
    check_finished(disk)


def test_events_are_told_once_also_when_a_step_failed_after_them(server: Server) -> None:
    server.journal.fuse = Fuse(kill_at=1, error=RunFolderFull("No space left on device"))
    with pytest.raises(RunFolderFull):
        server.generator.run_once(0.0)  # they are announced, and the journal says that it is full
    told = server.generator.run_once(0.0)
    announced = [recorded.event.workunit for recorded in told if isinstance(recorded.event, WorkunitCreated)]
    assert len(announced) == len(told) == 3
    assert set(server.grid.submitted) == set(announced)
    assert server.generator.run_once(0.0) == []


def test_what_clients_began_with_reaches_the_journal_when_there_is_room_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [[WorkunitSent("a", "worker-1", 1)], [WorkunitSent("b", "worker-2", 1)], []]
    monkeypatch.setattr(server.grid, "sent", lambda: sent.pop(0))
    server.journal.fuse = Fuse(kill_at=0, error=RunFolderFull("No space left on device"))
    with pytest.raises(RunFolderFull):
        server.generator.record_sent()
    server.generator.record_sent()
    server.generator.record_sent()
    assert [event.workunit for event in events(server) if isinstance(event, WorkunitSent)] == ["a", "b"]
