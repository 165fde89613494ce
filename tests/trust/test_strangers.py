"""How far an upload counts, by its host's history: what the server folds in, writes down and folds again."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.job_events import OWN
from tests.served_run import ServedRun, noise
from vcdl.journal.events import (
    Event,
    HostConvicted,
    UpdateApplied,
    UpdateRefused,
    UploadVerified,
    WorkunitCreated,
    WorkunitSent,
)
from vcdl.journal.kept_state import KeptState
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.loop.recovery import fold_again
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.run.staging import Uploaded
from vcdl.stores import WeightStore
from vcdl.trust.hosts import HostHistory
from vcdl.trust.kept_hosts import hosts_of
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import WorkunitName

WEIGHTS = 100


class World:
    """A run on which hosts work; a server folds each upload in as it comes."""

    def __init__(self, path: Path, trust: str) -> None:
        self.run = ServedRun.new(path, noise(0, WEIGHTS), "", trust=trust)
        self.journal = self.run.run.journal()
        self.server = ParameterServer.of(self.run.run, self.journal, UploadFolder(self.run.folder))
        self.number = 0

    @property
    def store(self) -> WeightStore:
        return self.server.store

    def bring(self, host: str, *, part: float = 1.0) -> Event:
        """An upload of a host; returns what the journal says of it."""
        self.number += 1
        workunit = self.run.bring(self.number, noise(self.number, WEIGHTS), part=part)
        self.journal.append(WorkunitSent(workunit, host, 10))
        self.server.run_once()
        return self.journal.read()[-1].event

    def by_time(self) -> Run:
        """The run with subtasks that end after ten seconds."""
        training = self.run.job.training.model_copy(update={"target_s": 10.0})
        return Run(self.run.folder, self.run.job.model_copy(update={"training": training}), self.run.prepared)

    def make_known(self, rounds: int = 5) -> None:
        """Five honest hosts bring uploads."""
        for _ in range(rounds):
            for place in range(5):
                self.bring(f"h{place}")

    def convict(self, host: str) -> None:
        """The server has trained uploads of this host and of an honest one again."""
        self.journal.append(
            UploadVerified("", "h0", 0, 0.0, True, 1.0),
            UploadVerified(" ", host, 0, 1.0, False, 1.0),
            HostConvicted(host, "its workunit", ()),
        )


class Told(UploadFolder):
    """Uploads of which the grid knows the host, as a pool's and BOINC's does."""

    def __init__(self, folder: RunFolder, host: str) -> None:
        super().__init__(folder)
        self._host = host

    def claim(self) -> list[Uploaded]:
        return [replace(upload, host=self._host) for upload in super().claim()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, "strangers")


def test_what_a_fast_host_brings_on_its_word_counts_little_and_a_second_fold_says_the_same(world: World) -> None:
    world.make_known(rounds=2)
    assert isinstance(world.bring("fast"), UpdateApplied)
    world.journal.append(UploadVerified("", "fast", 0, 0.0, True, 1.0))
    trusts = []
    for number in range(40):
        event = world.bring("fast" if number % 4 else f"h{number // 4 % 5}")
        assert isinstance(event, UpdateApplied)
        trusts.append(event.trust)
        assert event.weight == pytest.approx(event.trust * 0.1)
    assert trusts[1] == 1.0
    assert trusts[-1] == pytest.approx(0.05)
    _, weights = world.store.read()
    assert weights.tobytes() == world.run.replayed().tobytes()
    again = world.run.initial.copy()
    for recorded in world.journal.read():
        if isinstance(recorded.event, UpdateApplied):
            fold_again(world.run.run, recorded.event, again)
    assert again.tobytes() == weights.tobytes()


def test_a_server_begins_once_with_the_history_that_another_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.make_known(rounds=1)
    hosts_of(world.journal).load().save(at_once=True)
    begun, begin = [], KeptState.load

    def counted(state: KeptState[HostHistory]) -> KeptState[HostHistory]:
        begun.append(state)
        return begin(state)

    monkeypatch.setattr(KeptState, "load", counted)
    world.server = ParameterServer.of(world.run.run, world.journal, UploadFolder(world.run.folder))
    before = len(begun)
    for host in ("h0", "h1"):
        world.bring(host)
        assert len(begun) - before == 1


def test_what_does_not_count_fully_is_no_measure_of_norms(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    monkeypatch.setattr(world.server.check, "accept", norms.append)
    world.make_known(rounds=1)
    assert len(norms) == 5
    world.journal.append(UploadVerified("", "h0", 0, 0.0, True, 1.0))
    events = [world.bring("h0") for _ in range(30)]
    full = [event for event in events if isinstance(event, UpdateApplied) and event.trust == 1.0]
    assert len(full) < len(events)
    assert len(norms) == 5 + len(full)


def test_a_fast_host_of_which_nothing_was_trained_again_may_bring_little_more_than_its_part(world: World) -> None:
    world.make_known(rounds=2)
    events = [world.bring("fast" if number % 4 else f"h{number // 4 % 5}") for number in range(60)]
    refused = [event for event in events if isinstance(event, UpdateRefused)]
    assert {(event.host, event.refusal) for event in refused} == {("fast", "host_unknown")}
    assert 0.1 < (45 - len(refused)) / (60 + 10 - len(refused)) < 0.35


def test_parts_count_only_from_hosts_that_bring_whole_subtasks_and_their_rest_is_made_again(world: World) -> None:
    """Hosts that trained 3 % of each subtask, and said so, took nearly all of a job: it ended at chance."""
    world.make_known(rounds=1)
    for _ in range(3):
        refused = world.bring("thief", part=0.03)
        assert isinstance(refused, UpdateRefused)
        assert (refused.refusal, refused.host) == ("unfinished", "thief")
    part = world.bring("h0", part=0.5)
    assert isinstance(part, UpdateApplied)
    assert part.is_part
    assert part.trust == pytest.approx(0.999), "it counts, and is no measure for others"
    assert isinstance(world.bring("h0", part=0.5), UpdateRefused)
    whole = world.bring("h0")
    assert isinstance(whole, UpdateApplied)
    assert not whole.is_part
    assert isinstance(world.bring("h0", part=0.5), UpdateApplied)


def test_what_is_made_again_counts_by_how_many_are_out_with_it(world: World) -> None:
    """Alone at a job's end, one shard of a few classes would take the place of what all have learned."""
    world.make_known(rounds=2)
    alone = world.run.bring(40, noise(40, WEIGHTS), attempt=10_000)
    world.journal.append(WorkunitSent(alone, "h0", 10))
    world.server.run_once()
    event = world.journal.read()[-1].event
    assert isinstance(event, UpdateApplied)
    assert event.trust == pytest.approx(1 / 5)
    among = world.run.bring(41, noise(41, WEIGHTS), attempt=10_000)
    world.journal.append(*(WorkunitSent(world.run.workunit(number), f"h{number % 5}", 10) for number in range(42, 46)))
    world.journal.append(WorkunitSent(among, "h0", 10))
    world.server.run_once()
    event = world.journal.read()[-1].event
    assert isinstance(event, UpdateApplied)
    assert event.trust == pytest.approx(0.999)


def test_of_own_machines_every_part_counts_and_its_rest_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path, "own")
    events = [world.bring("spot", part=part) for part in (0.5, 0.1, 1.0)]
    assert [isinstance(event, UpdateApplied) and event.is_part for event in events] == [True, True, False]
    assert [event.trust for event in events if isinstance(event, UpdateApplied)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("held_s", "is_part"), [(1.0, True), (6.0, False), (None, True)])
def test_where_subtasks_end_by_time_a_part_counts_once_its_host_has_had_that_time(
    world: World, held_s: float | None, is_part: bool
) -> None:
    """A host that is back before the journal says that it was sent anything has had no time at all."""
    world.make_known(rounds=1)
    workunit = world.run.bring(40, noise(40, WEIGHTS), part=0.3)
    run = world.by_time()
    server = ParameterServer.of(run, world.journal, Told(run.folder, "h0"))
    if held_s is not None:
        world.journal.append_at([(time.time() - held_s, WorkunitSent(workunit, "h0", 10))])
    server.run_once()
    event = world.journal.read()[-1].event
    assert isinstance(event, UpdateApplied)
    assert event.is_part is is_part


def test_where_subtasks_end_by_time_next_to_nothing_completes_none_and_counts_once_in_that_time(world: World) -> None:
    """Three hosts of ten that had eight tasks at a time, and trained a batch of each, cost 14 points of 100."""
    world.make_known(rounds=1)
    workunits = [world.run.bring(number, noise(number, WEIGHTS), part=0.02) for number in range(40, 43)]
    workunits += [world.run.bring(number, noise(number, WEIGHTS), part=0.3) for number in range(43, 46)]
    world.journal.append_at([(time.time() - 6.0, WorkunitSent(workunit, "thief", 10)) for workunit in workunits])
    world.server = ParameterServer.of(world.by_time(), world.journal, UploadFolder(world.run.folder))
    world.server.run_once()
    events = [row.event for row in world.journal.read()]
    applied = {event.workunit: event.is_part for event in events if isinstance(event, UpdateApplied)}
    refused = {event.workunit: event.refusal for event in events if isinstance(event, UpdateRefused)}
    assert [applied.get(workunit, refused.get(workunit)) for workunit in workunits] == [
        True,
        *("unfinished", "unfinished"),
        *(False, False, False),
    ]


def test_on_own_machines_a_subtask_that_ends_by_time_is_whole(tmp_path: Path) -> None:
    """No journal is followed for them: each subtask was made again without end."""
    world = World(tmp_path, "own")
    world.server = ParameterServer.of(world.by_time(), world.journal, UploadFolder(world.run.folder))
    event = world.bring("h0", part=0.2)
    assert isinstance(event, UpdateApplied)
    assert not event.is_part


def test_what_the_server_trained_itself_counts_fully_beside_a_hosts_attempt_and_once(world: World) -> None:
    world.make_known(rounds=1)
    workunit = world.run.bring(49, noise(49, WEIGHTS), attempt=OWN + 3)
    folder = world.run.folder
    folder.own_uploads.mkdir()
    own = folder.own_upload(workunit)
    (folder.uploads / own.name).rename(own)
    content = own.read_bytes()
    world.server.run_once()
    applied = world.journal.read()[-1].event
    assert isinstance(applied, UpdateApplied)
    assert (applied.workunit, applied.trust, applied.host) == (workunit, 1.0, "")
    assert not own.exists()
    own.write_bytes(content)  # another server had taken it, too
    world.server.run_once()
    assert world.store.version() == applied.version
    assert not own.exists()


def test_no_attempt_of_a_convicted_host_counts(world: World) -> None:
    world.make_known()
    world.convict("bad")
    before = world.store.read()
    for attempt in range(4):
        workunit = world.run.bring(49, noise(49, WEIGHTS), attempt=attempt)
        world.journal.append(WorkunitSent(workunit, "bad", 10))
        world.server.run_once()
        event = world.journal.read()[-1].event
        assert isinstance(event, UpdateRefused)
        assert (event.refusal, event.host) == ("host_quarantined", "bad")
        assert event.detail == "bad: its upload for its workunit was not the result of the training"
    version, weights = world.store.read()
    assert (version, weights.tobytes()) == (before[0], before[1].tobytes())
    assert world.run.waiting() == 0


def test_what_was_folded_before_the_conviction_gets_its_row_from_the_store(world: World) -> None:
    """The server was killed between store and journal, and the host convicted before its upload came again."""
    world.make_known(rounds=4)
    workunit = world.run.bring(49, noise(49, WEIGHTS))
    upload = world.run.folder.uploads / f"{workunit}.h5"
    content = upload.read_bytes()
    world.server.run_once()
    version, _ = world.store.read()
    world.journal._connection.execute("DELETE FROM events WHERE kind = 'update_applied' AND key LIKE '%s049'")
    world.journal._connection.commit()
    world.journal.append(WorkunitSent(workunit, "bad", 10))
    world.convict("bad")
    upload.write_bytes(content)
    ParameterServer.of(world.run.run, world.journal, UploadFolder(world.run.folder)).run_once()
    last = world.journal.read()[-1].event
    assert isinstance(last, UpdateApplied)
    assert (last.workunit, last.version) == (workunit, version)


def test_what_a_liar_had_in_hand_counts_once_more_and_a_lie_that_comes_twice_does_not(world: World) -> None:
    world.make_known()
    lie = world.run.bring(49, noise(49, WEIGHTS))
    content = (world.run.folder.uploads / f"{lie}.h5").read_bytes()
    world.journal.append(WorkunitSent(lie, "bad", 10))
    world.server.run_once()
    world.convict("bad")
    again = world.run.bring(49, noise(50, WEIGHTS), attempt=WorkunitName.parse(lie).next_turn)
    world.journal.append(WorkunitSent(again, "h1", 10))
    world.server.run_once()
    applied = world.journal.read()[-1].event
    assert isinstance(applied, UpdateApplied)
    assert (applied.workunit, applied.version) == (again, world.store.version())
    (world.run.folder.uploads / f"{lie}.h5").write_bytes(content)
    world.server.run_once()
    assert world.store.version() == applied.version
    assert [
        row.event for row in world.journal.events_with_key_prefix(UpdateApplied.key_of(WorkunitName.parse(lie).subtask))
    ][-1] == applied


def test_a_server_bounds_refuses_and_doubts_and_a_second_fold_comes_to_the_same_bits(world: World) -> None:
    prepared = replace(world.run.run.prepared, own_step=(1.0, 1.0))
    run = Run(world.run.folder, world.run.job, prepared)
    shutil.rmtree(world.run.folder.store)
    store = run.store()
    store.create(world.run.initial)
    write_weights(world.run.folder.reference_update_file, noise(1, WEIGHTS), "{}")
    server = ParameterServer(run, world.journal, store, UploadFolder(world.run.folder))

    def after(number: int, attempt: int, length: float) -> Event:
        step = noise(1, WEIGHTS) * np.float32(length / np.linalg.norm(noise(1, WEIGHTS)))
        world.run.bring(number, world.run.initial + step, attempt=attempt)
        server.run_once()
        return world.journal.read()[-1].event

    assert isinstance(after(1, 0, 1.0), UpdateApplied)
    assert isinstance(after(2, 0, 3.0), UpdateApplied)
    for attempt in (0, 1):
        refused = after(3, attempt, 100.0)
        assert isinstance(refused, UpdateRefused)
        assert refused.refusal == "step_too_long"
    doubted = after(3, 2, 100.0)
    assert isinstance(doubted, UpdateApplied)
    assert doubted.trust == pytest.approx(0.02)
    moved = store.read()[1] - world.run.initial
    # 0.1 each: 1, then 3 within 1.5, then as much counted a fiftieth
    assert np.linalg.norm(moved) == pytest.approx(((0.1 * 0.9) + 0.15) * 0.998 + 0.15 * 0.02, rel=0.01)
    again = run.state.initial(world.run.initial)
    for recorded in world.journal.read():
        if isinstance(recorded.event, UpdateApplied):
            fold_again(run, recorded.event, again)
    assert again.tobytes() == store.read_whole()[1].tobytes()


def test_an_upload_waits_until_the_journal_says_whose_it_is(world: World) -> None:
    """A pilot that says nothing before its update is there was nobody to servers in other processes: its uploads
    counted fully, without limit, and none was trained again.
    """
    world.make_known(rounds=3)
    workunit = world.run.bring(40, noise(40, WEIGHTS))
    world.journal.append(WorkunitCreated(workunit))
    before = world.journal.last_id()
    assert world.server.run_once() == 0
    assert world.journal.last_id() == before
    world.journal.append(WorkunitSent(workunit, "silent", 10))
    assert world.server.run_once() == 1
    event = world.journal.read()[-1].event
    assert isinstance(event, UpdateApplied)
    assert event.host == "silent"
