"""A store that forgets, under a rule that needs the weights each client started from: they are there when
updates are folded again.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.memory_grid import MemoryGrid, received
from tests.served_run import ServedRun, noise
from tests.stores.conftest import redis_client
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.errors import StoreError
from vcdl.journal.events import EpochClosed
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.loop import Loop
from vcdl.loop.parameter_server import ParameterServer
from vcdl.rules.base import Update
from vcdl.run.kept_weights import Snapshots
from vcdl.wire.layout import Vector
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import PLAIN, WorkunitName

pytestmark = pytest.mark.server

WEIGHTS = 1000
PLAIN_TRANSPORT: object = {}
SHARDS = 6
STATELESS = {"rule": "trimmed_mean", "buffer": 1, "trim": 0}
RULES = [
    STATELESS,
    {"rule": "vc_asgd", "alpha": {"from": 0.2, "to": 0.9}},
    "forecast",
    {"rule": "fedbuff", "buffer": 4},
    {"rule": "trimmed_mean", "buffer": 5, "trim": 1},
]


class Life:
    """A run over Redis whose clients a test plays; all that it made is remembered."""

    def __init__(self, path: Path, redis_url: str, update: object, transport: object) -> None:
        run = ServedRun.new(path, noise(0, WEIGHTS), redis_url)
        settings = run.job.model_dump(by_alias=True, exclude_none=True)
        settings["data"] = {"dataset": "digits", "shards": SHARDS}
        self.job = type(run.job).model_validate({**settings, "update": update, "transport": transport})
        self.run = replace(run.run, job=self.job)
        self.rule, self.folder = self.run.rule, run.folder
        run.store.drop()
        self.run.store().create(run.initial)
        write_weights(run.folder.reference_update_file, noise(99, WEIGHTS), "{}")
        transport, layout = self.run.transport, run.prepared.layout
        ways = None if transport == PLAIN else (down_encoding(transport, layout), up_encoding(transport, layout))
        self.grid = MemoryGrid(self.folder.uploads, layout.fingerprint, wanted=3, ways=ways, samples=100)
        self.loop = Loop.of(self.run, self.grid)
        self.journal = self.loop.journal
        self.server = self.served()
        self.whole = self.rule.state.initial(run.initial.copy())
        self.made: list[Vector] = [run.initial]

    def served(self) -> ParameterServer:
        """Another process, which takes the uploads from the folder."""
        return ParameterServer.of(self.run, self.journal, UploadFolder(self.folder))

    def go_on(self, updates: int) -> None:
        """Each from the client that waits longest, or that began last."""
        for _ in range(updates):
            self.loop.step()
            number = len(self.made)
            workunit = self.grid.running[-(number % 2)]
            name, client = WorkunitName.parse(workunit), noise(number, WEIGHTS)
            self.grid.bring(workunit, client)
            self.server.run_once()
            self.grid.submitted.pop(workunit)
            self.grid.outcomes.pop(workunit)
            staleness = number - 1 - name.base_version
            base = self.made[name.base_version]
            seen = received(self.grid.ways, base, client)
            update = Update(
                weights=seen, epoch=name.epoch, staleness=staleness, samples=100, fraction=1.0, number=number,
                base=base, updates=self.job.subtasks,
            )  # fmt: skip
            self.rule.apply(self.rule.state.rows(self.whole), update)
            self.made.append(self.rule.state.weights(self.whole).copy())
        self.loop.step()

    def snapshots(self) -> set[int]:
        return {int(path.stem[-6:]) for path in self.folder.snapshots.glob("params_v*.h5")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Its name is that of the run in the store."""
    return tmp_path / tmp_path.name


def begun(path: Path, redis_url: str, update: object, transport: object = PLAIN_TRANSPORT) -> Life:
    """In its second epoch; the last updates are in no snapshot, and what their clients started from is of no
    other use.
    """
    life = Life(path, redis_url, update, transport)
    life.go_on(SHARDS + 2)
    life.grid.wanted = 0
    life.go_on(3)
    assert list(life.loop.coordinator.history.closed) == [1]
    return life


@pytest.mark.parametrize("update", RULES, ids=str)
def test_weights_are_restored_to_the_last_bit(path: Path, redis_url: str, update: object) -> None:
    life = begun(path, redis_url, update)
    redis_client(redis_url).flushall()
    assert life.served().restore() == 3
    version, weights = life.server.store.read()
    assert version == SHARDS + 6
    np.testing.assert_array_equal(weights, life.made[-1])
    np.testing.assert_array_equal(life.server.store.read_whole()[1], life.whole)


def test_a_snapshot_without_its_state_is_passed_over(path: Path, redis_url: str) -> None:
    """A base of clients, or one whose process was killed before it had both."""
    life = begun(path, redis_url, {"rule": "fedbuff", "buffer": 4})
    life.loop.snapshots.keep(SHARDS + 4, noise(98, WEIGHTS))
    redis_client(redis_url).flushall()
    assert life.served().restore() == 3
    np.testing.assert_array_equal(life.server.store.read_whole()[1], life.whole)


def test_killed_between_state_and_weights_the_next_one_keeps_both(
    path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = begun(path, redis_url, {"rule": "fedbuff", "buffer": 4})

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            life.loop.snapshots.keep_newest(durable=True)
    assert life.folder.state_snapshot(SHARDS + 5).exists()
    redis_client(redis_url).flushall()
    assert life.served().restore() == 3
    assert life.loop.snapshots.keep_newest(durable=True) == SHARDS + 6
    life.loop.journal.append(EpochClosed(2, SHARDS + 6))
    redis_client(redis_url).flushall()
    assert life.served().restore() == 0
    np.testing.assert_array_equal(life.server.store.read_whole()[1], life.whole)


@pytest.mark.parametrize("up", ["int8", {"name": "top_k", "share": 0.1}, "bfloat16", "float32"], ids=str)
def test_uploads_that_travel_encoded_are_folded_again_to_the_last_bit(path: Path, redis_url: str, up: object) -> None:
    transport = {"down": "bfloat16", "up": up, "compress": True}
    life = begun(path, redis_url, {"rule": "vc_asgd", "alpha": 0.9}, transport)
    redis_client(redis_url).flushall()
    assert life.served().restore() == 3
    assert life.server.store.read()[1].tobytes() == life.made[-1].tobytes()


def test_what_clients_started_from_is_kept_until_an_epoch_covers_it(path: Path, redis_url: str) -> None:
    life = begun(path, redis_url, STATELESS)
    coordinator = life.loop.coordinator
    assert life.snapshots() >= coordinator.versions_to_fold_again_with
    assert coordinator.versions_to_fold_again_with - coordinator.versions_in_use, "or this test shows nothing"
    life.grid.wanted = 3
    life.go_on(2 * SHARDS - len(life.made) + 1)
    assert list(coordinator.history.closed) == [1, 2]
    assert life.snapshots() <= coordinator.versions_in_use | coordinator.versions_to_fold_again_with
    assert min(coordinator.versions_to_fold_again_with, default=SHARDS) >= SHARDS


@pytest.mark.parametrize(
    ("update", "transport"), [(STATELESS, {}), ({"rule": "vc_asgd", "alpha": 0.9}, {"up": "int8"})], ids=str
)
def test_a_base_that_is_gone_is_named(path: Path, redis_url: str, update: object, transport: object) -> None:
    life = begun(path, redis_url, update, transport)
    redis_client(redis_url).flushall()
    for version in life.snapshots() - {max(life.snapshots())}:
        life.folder.snapshot(version).unlink()
    with pytest.raises(StoreError, match=r"the weights that it started from are not kept any more: params_v\d+\.h5"):
        life.served().restore()
