"""The virtual grid with a stand-in for training: when uploads come, and to whom subtasks go."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest

from tests.places import ROOT
from tests.uploads import header_of
from vcdl.codecs.choose import up_encoding
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.client_work import TrainedWork
from vcdl.simulate.clients import Clients
from vcdl.simulate.virtual_grid import LOSSES, VirtualGrid
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.taken import upload_mark
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import PLAIN, Named, Training, Transport, UpdateHeader, Workunit, WorkunitName

SIZE = 1000
BASE = np.linspace(-1, 1, SIZE, dtype=np.float32)
TRAINED = BASE + np.float32(0.5)
TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))


LAYOUT = Layout((Variable("w", (SIZE,), 0),))
SUBTASKS = 10
"""Number of the whole job's subtasks."""
PLAIN_ENCODING = up_encoding(PLAIN, LAYOUT)


class StandIn:
    """Training that is done when it is asked for; remembers what it was told."""

    def __init__(self, uploads: Path) -> None:
        self.uploads = uploads
        self.begun: list[str] = []
        self.versions: list[tuple[str, int | None]] = []
        """Each training that was ordered, with the newer version that its client begins with."""
        self.shards: list[Path] = []
        self.trained: dict[int, Vector] = {}
        """The weights after training by shard, if they are not TRAINED."""
        self.finished: list[str] = []
        self.fails: set[str] = set()

    def start(self) -> None: ...

    def begin(self, staged: Staged, due_s: float) -> None:
        self.begun.append(staged.workunit.name)
        self.versions.append((staged.workunit.name, staged.newest and staged.newest[0]))
        self.shards.append(staged.shard)

    def look(self) -> None: ...

    def outcome(self, workunit: str) -> Outcome:
        if workunit in self.fails:
            return GaveUp(workunit, "the training diverged")
        path = self.uploads / f"{workunit}.h5"
        weights = self.trained.get(WorkunitName.parse(workunit).shard, TRAINED)
        write_weights(path, weights, header_of(workunit, "layout", train_s=123.4).to_json())
        return Uploaded(workunit, path, path.stat().st_size)

    def done(self, workunit: str, version: int | None) -> None:
        self.finished.append(workunit)

    def cancel(self, workunits: Collection[str]) -> None: ...

    def close(self) -> None: ...


class World:
    """A grid and all that belongs to it."""

    transport = PLAIN

    def __init__(self, folder: Path, fleet: ClientFleet) -> None:
        self.folder, self.fleet = folder, fleet
        for name in ("model.json", "shard"):
            (folder / name).write_text("x" * 100)
        write_weights(folder / "params.h5", BASE, "{}")
        self.time, self.training = VirtualTime(), StandIn(folder)
        clients = self.clients()
        self.grid = VirtualGrid(clients, self.time, self.work(clients))

    def clients(self) -> Clients:
        return Clients(self.fleet)

    def work(self, clients: Clients) -> TrainedWork:
        return TrainedWork(clients, self.training, (PLAIN_ENCODING, PLAIN_ENCODING))

    def submit(self, *shards: int) -> list[str]:
        folder = self.folder
        workunits = [
            Workunit("j", 1, shard, 0, 0, 7, TRAINING, self.transport, taken="00" * 4 * 40) for shard in shards
        ]
        self.grid.submit([Staged(w, folder / "model.json", folder / "params.h5", folder / "shard") for w in workunits])
        return [workunit.name for workunit in workunits]

    def until_all_is_done(self) -> list[tuple[float, Outcome]]:
        """Every outcome with the time at which it came."""
        came: list[tuple[float, Outcome]] = []
        while self.time.advance(math.inf):
            for outcome in self.grid.claim():
                came.append((self.time.now_s(), outcome))
                self.grid.done(outcome.workunit)
        return came


class Remembering(World):
    """One whose clients remember what their uploads left out."""

    def __init__(self, folder: Path, fleet: ClientFleet, transport: Transport) -> None:
        self.transport = transport
        super().__init__(folder, fleet)

    def work(self, clients: Clients) -> TrainedWork:
        encodings = PLAIN_ENCODING, up_encoding(self.transport, LAYOUT)
        return TrainedWork(clients, self.training, encodings, self.folder / "memories")


NewWorld = Callable[[ClientFleet], World]


@pytest.fixture
def world(tmp_path: Path) -> NewWorld:
    return lambda fleet: World(tmp_path, fleet)


def test_an_upload_comes_when_its_client_would_bring_it(world: NewWorld) -> None:
    w = world(ClientFleet(clients=2, slots=1, jitter=0.0, speed_ratio=4.0, upload_s=1.0))
    w.submit(0, 1)
    came = w.until_all_is_done()
    assert [time_s for time_s, _ in came] == sorted(60 / speed + 1 for speed in Clients(w.fleet).speeds)


def test_a_client_remembers_what_its_upload_left_out(tmp_path: Path) -> None:
    """By its own memory and its own link; what is trained here is exact."""
    fleet = ClientFleet(clients=2, slots=1, jitter=0.0, link_mb_per_s=1.0)
    transport = Transport(up=Named("top_k", {"share": 0.1}), feedback=True)
    for name in ("model.json", "shard"):
        (tmp_path / name).write_text("x")
    write_weights(tmp_path / "params.h5", BASE, "{}")
    up = up_encoding(transport, LAYOUT)
    training, memories = StandIn(tmp_path), tmp_path / "memories"
    work = TrainedWork(Clients(fleet), training, (PLAIN_ENCODING, up), memories)
    sent, marks = [], [0] * 12
    for shard in range(3):
        taken = bytes(marks).hex()
        workunit = Workunit("j", 1, shard, 0, 0, 7, TRAINING, transport, taken=taken)
        staged = Staged(workunit, tmp_path / "model.json", tmp_path / "params.h5", tmp_path / "shard")
        work.begin(staged, 1, 0.0)
        outcome = work.upload(staged, 1, 60.0)
        assert isinstance(outcome, Uploaded)
        sent.append(up.read(outcome.path)[0])
        marks[9 + shard] = upload_mark(workunit.name, 60.0)
    assert [np.count_nonzero(change) for change in sent] == [100, 100, 100]
    assert np.count_nonzero(sum(sent)) == 300, "each sends what those before it left out"
    assert [path.name for path in memories.iterdir()] == ["client-01"]


def test_uploads_queue_on_a_link_and_a_slot_goes_on_with_one_of_them_waiting(
    world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainedWork, "bytes_down", lambda *_: 0)
    monkeypatch.setattr(Clients, "upload_s", lambda _, __, size_bytes: 500.0 if size_bytes else 0.0)
    w = world(ClientFleet(clients=1, slots=1, jitter=0.0, link_mb_per_s=1.0, timeout_s=1e6))
    w.submit(0, 1, 2)
    begun_s, came_s = [w.time.now_s() for _ in w.grid.sent()], []
    while w.time.advance(math.inf):
        begun_s += [w.time.now_s() for _ in w.grid.sent()]
        for outcome in w.grid.claim():
            came_s.append(w.time.now_s())
            w.grid.done(outcome.workunit)
    assert (begun_s, came_s) == ([0, 60, 560], [560, 1060, 1560])


def test_every_slot_of_every_client_is_wanted_and_nothing_more(world: NewWorld) -> None:
    w = world(ClientFleet(clients=3, slots=2, jitter=0.0))
    assert w.grid.target_open_workunits() == 6
    names = w.submit(*range(7))
    assert w.grid.target_open_workunits() == 6
    w.grid.cancel(names)
    assert w.grid.target_open_workunits() == 0
    w.time.advance(math.inf)
    assert w.grid.target_open_workunits() == 6


def test_uploads_wait_for_a_free_server(world: NewWorld) -> None:
    one = world(ClientFleet(clients=4, slots=1, jitter=0.0, update_s=10.0))
    one.submit(*range(4))
    assert [time_s for time_s, _ in one.until_all_is_done()] == [70, 80, 90, 100]
    two = world(ClientFleet(clients=4, slots=1, jitter=0.0, update_s=10.0, servers=2))
    two.submit(*range(4))
    assert [time_s for time_s, _ in two.until_all_is_done()] == [70, 70, 80, 80]


def test_a_lost_subtask_is_not_trained_and_its_slot_goes_on_before_the_server_hears_of_it(world: NewWorld) -> None:
    w = world(ClientFleet(clients=1, slots=1, lost=0.999999, timeout_s=500.0))
    (name,) = w.submit(0)
    assert w.training.begun == []
    w.time.advance(math.inf)
    assert w.time.now_s() < 80
    assert (w.grid.claim(), w.grid.has(name), w.grid.target_open_workunits()) == ([], True, 2)
    ((time_s, outcome),) = w.until_all_is_done()
    assert (time_s, outcome) == (LOSSES * 500.0, GaveUp(name, "client-00 lost it"))
    assert [sent.workunit for sent in w.grid.sent()] == [name] * LOSSES
    assert not w.grid.has(name)


def test_a_lost_workunit_comes_from_another_client_before_it_is_given_up(world: NewWorld) -> None:
    w = world(ClientFleet(clients=2, slots=1, lost=0.5, loss_report_s=0.0))
    names = w.submit(*range(40))
    came = {outcome.workunit: type(outcome) for _, outcome in w.until_all_is_done()}
    tries = Counter(sent.workunit for sent in w.grid.sent())
    assert came.keys() == set(names)
    assert {tries[name] for name in names if came[name] is GaveUp} == {LOSSES}
    assert {tries[name] for name in names if came[name] is Uploaded} == {1, 2, 3}


def test_a_subtask_that_was_lost_begins_again_with_the_newest_weights(world: NewWorld, tmp_path: Path) -> None:
    w = world(ClientFleet(clients=2, slots=1, lost=0.5, loss_report_s=0.0))
    names = w.submit(*range(20))
    w.grid.publish(7, tmp_path / "newest.h5")
    write_weights(tmp_path / "newest.h5", BASE, "{}")
    w.until_all_is_done()
    sent = [one.workunit for one in w.grid.sent()]
    came = dict(w.training.versions)
    assert {came[name] for name in names[:2] if sent.count(name) == 1} <= {None}, "begun before it was published"
    again = [version for name, version in w.training.versions if sent.count(name) > 1]
    assert again
    assert set(again) == {7}
    assert w.training.versions[-1][1] == 7, "also one that waited"


def test_a_second_copy_begins_with_newer_weights_than_the_first(world: NewWorld, tmp_path: Path) -> None:
    """So the second client trains something else, and it counts when it comes first."""
    w = world(ClientFleet(clients=2, slots=1, jitter=0.0, speed_ratio=9.0, second_copies=True))
    write_weights(tmp_path / "newest.h5", BASE, "{}")
    w.submit(*range(22))
    came: list[Outcome] = []
    while w.time.advance(math.inf):
        for outcome in w.grid.claim():
            came.append(outcome)
            w.grid.done(outcome.workunit)
            w.grid.publish(len(came), tmp_path / "newest.h5")
        w.grid.replicate_late(queue_empty=True)
    assert [type(outcome) for outcome in came] == [Uploaded] * 22
    trained: dict[str, list[int]] = {}
    for name, version in w.training.versions:
        trained.setdefault(name, []).append(version or 0)
    overtaken = [versions for versions in trained.values() if len(versions) > 1]
    assert overtaken
    assert all(first < second for first, second in overtaken)


def test_a_lost_upload_is_trained_for_real_where_its_client_remembers(tmp_path: Path) -> None:
    fleet = ClientFleet(clients=2, slots=1, lost_uploads=0.5, loss_report_s=0.0)
    transport = Transport(up=Named("top_k", {"share": 0.1}), feedback=True)
    w = Remembering(tmp_path, fleet, transport)
    names = w.submit(*range(20))
    came = w.until_all_is_done()
    sent = Counter(one.workunit for one in w.grid.sent())
    lost = sum(sent.values()) - sum(isinstance(outcome, Uploaded) for _, outcome in came)
    assert lost > 5
    assert len(w.training.begun) == sum(sent.values())
    assert len(list((tmp_path / "memories").glob("*/vcdl_residual_*"))) > len(names), "those of lost ones, too"


def test_a_workunit_is_given_up_after_as_many_losses_as_boinc_allows() -> None:
    (most,) = re.findall(r"<max_error_results>(\d+)<", (ROOT / "templates" / "vcdl_in.xml").read_text(encoding="utf-8"))
    assert int(most) + 1 == LOSSES


def test_training_that_fails_for_real_is_a_failure_at_its_time(world: NewWorld) -> None:
    w = world(ClientFleet(clients=1, slots=1, jitter=0.0))
    (name,) = w.submit(0)
    w.training.fails.add(name)
    assert w.until_all_is_done() == [(60.0, GaveUp(name, "the training diverged"))]


def test_an_upload_says_how_long_its_client_trained_and_nothing_of_this_machine(world: NewWorld) -> None:
    w = world(ClientFleet(clients=1, slots=1, jitter=0.0))
    w.submit(0)
    w.time.advance(math.inf)
    (uploaded,) = w.grid.claim()
    assert isinstance(uploaded, Uploaded)
    vector, text = read_weights(uploaded.path, SIZE)
    assert UpdateHeader.from_json(text).train_s == 60
    assert vector.tolist() == TRAINED.tolist()
    assert uploaded.size_bytes == uploaded.path.stat().st_size
    assert uploaded.host == "client-00"


def test_a_client_downloads_the_model_and_a_shard_once_and_the_weights_each_time(world: NewWorld) -> None:
    w = world(ClientFleet(clients=1, slots=2))
    w.submit(0, 1)
    first, second = w.grid.sent()
    assert first.host == second.host == "client-00"
    assert first.bytes_down - second.bytes_down == 200
    assert second.bytes_down > 4 * SIZE


def test_an_outcome_is_told_until_it_is_done(world: NewWorld) -> None:
    w = world(ClientFleet(clients=1, slots=1))
    (name,) = w.submit(0)
    w.submit(0)
    w.time.advance(math.inf)
    assert w.grid.claim() == w.grid.claim() != []
    w.grid.done(name)
    assert w.grid.claim() == []
    assert w.training.finished == [name]
