"""Simulated runs with hostile clients: which attack, when, with what, and under which name."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.hostile_fleet import Hostile, HostileFleet, load_fleet
from benchmarks.experiments.hostile_run import HostileHosts, HostileWork, is_of
from benchmarks.experiments.poisoned_data import PoisonedData
from tests.simulate.test_virtual_grid import BASE, PLAIN_ENCODING, SIZE, SUBTASKS, TRAINED, World
from vcdl.data.npz_file import read_split, write_split
from vcdl.run.staging import Uploaded
from vcdl.simulate.client_work import TrainedWork
from vcdl.simulate.clients import Clients
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import UpdateHeader, WorkunitName


class HostileWorld(World):
    """The same of a fleet with hostile clients."""

    def __init__(self, folder: Path, fleet: HostileFleet) -> None:
        self.hosts = HostileHosts(fleet)
        super().__init__(folder, fleet)

    def clients(self) -> Clients:
        return self.hosts

    def work(self, clients: Clients) -> TrainedWork:
        data = PoisonedData(self.folder / "poisoned", [self.folder / "shard"])
        return HostileWork(self.hosts, data, SUBTASKS, self.training, (PLAIN_ENCODING, PLAIN_ENCODING))


NewHostileWorld = Callable[[HostileFleet], HostileWorld]


@pytest.fixture
def world(tmp_path: Path) -> NewHostileWorld:
    return lambda fleet: HostileWorld(tmp_path, fleet)


@pytest.mark.parametrize(
    ("conditions", "epoch", "attempt", "done", "attacks"),
    [
        ("attack: alie", 1, 0, 0.0, True),
        ("attack: none", 1, 0, 1.0, False),
        ("attack: alie, from_epoch: 2, to_epoch: 3", 1, 0, 0.5, False),
        ("attack: alie, from_epoch: 2, to_epoch: 3", 3, 0, 0.5, True),
        ("attack: alie, from_epoch: 2, to_epoch: 3", 4, 0, 0.5, False),
        ("attack: alie, from_part: 0.6", 9, 0, 0.59, False),
        ("attack: alie, from_part: 0.6", 1, 0, 0.6, True),
        ("attack: alie, from_attempt: 2", 1, 1, 0.5, False),
        ("attack: alie, from_attempt: 2", 1, 2, 0.5, True),
    ],
)
def test_a_client_attacks_when_all_its_conditions_hold(
    conditions: str, epoch: int, attempt: int, done: float, attacks: bool
) -> None:
    (hostile,) = load_fleet(None, [f"hostile=[{{client: 0, {conditions}}}]"]).hostile
    assert hostile.attacks(WorkunitName("j", epoch, 0, attempt, 0), done) is attacks


def uploads(w: HostileWorld) -> dict[str, Vector]:
    """The uploads of each client."""
    w.submit(*range(w.fleet.clients))
    hosts = {sent.workunit: sent.host for sent in w.grid.sent()}
    came = w.until_all_is_done()
    return {hosts[item.workunit]: read_weights(item.path, SIZE)[0] for _, item in came if isinstance(item, Uploaded)}


def test_hostile_clients_upload_something_else(world: NewHostileWorld) -> None:
    hostile = (Hostile(client=0, attack="sign_flip", scale=10.0), Hostile(client=2, attack="noise", scale=2.0))
    sent = uploads(world(HostileFleet(clients=3, slots=1, hostile=hostile)))
    assert sent["client-00"] == pytest.approx(BASE - np.float32(10 * 0.5), abs=1e-5)
    assert sent["client-01"].tolist() == TRAINED.tolist()
    noise = sent["client-02"] - BASE
    assert float(noise.std()) == pytest.approx(2 * 0.5, rel=0.1)
    assert abs(float(noise.mean())) < 0.15


def test_a_client_that_flips_labels_trains_on_a_shard_of_its_own(world: NewHostileWorld) -> None:
    w = world(HostileFleet(clients=2, slots=1, hostile=(Hostile(client=1, attack="label_flip"),)))
    write_split(w.folder / "shard", np.zeros((4, 1), np.float32), np.array([0, 1, 2, 2], np.int32))
    w.submit(0, 1)
    honest, flipped = (read_split(path)[1].tolist() for path in w.training.shards)
    assert (honest, flipped) == ([0, 1, 2, 2], [2, 1, 0, 0])


def test_who_trains_a_part_claims_the_whole_shard(world: NewHostileWorld) -> None:
    w = world(HostileFleet(clients=1, slots=1, hostile=(Hostile(client=0, attack="part_trained", scale=0.05),)))
    write_split(w.folder / "shard", np.zeros((40, 1), np.float32), np.zeros(40, np.int32))
    w.submit(0)
    (_, outcome), *_ = w.until_all_is_done()
    assert isinstance(outcome, Uploaded)
    assert len(read_split(w.training.shards[0])[0]) == 2
    weights, header = read_weights(outcome.path, SIZE)
    assert UpdateHeader.from_json(header).samples == 40
    assert weights.tolist() == TRAINED.tolist()


def test_a_client_that_is_renamed_is_another_host_after_some_subtasks(world: NewHostileWorld) -> None:
    hostile = Hostile(client=0, attack="none", renamed_every=2)
    w = world(HostileFleet(clients=1, slots=1, hostile=(hostile,)))
    w.submit(*range(5))
    hosts = [outcome.host for _, outcome in w.until_all_is_done() if isinstance(outcome, Uploaded)]
    assert hosts == ["client-00-0"] * 2 + ["client-00-1"] * 2 + ["client-00-2"]
    assert [sent.host for sent in w.grid.sent()] == hosts
    assert all(is_of(host, [0]) and not is_of(host, [1]) for host in hosts)
