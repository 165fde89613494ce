"""What a host remembers between its subtasks: what an upload leaves out comes later, and no change counts twice."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.codecs.encodings import WITH_MOMENTS, changes
from tests.full_disk import files_limited_to
from tests.plans import a_plan
from vcdl.client.init_data import InitData
from vcdl.client.residual import HostMemory, write_upload
from vcdl.codecs.choose import up_encoding
from vcdl.journal.events import HostConvicted, Recorded, UpdateApplied
from vcdl.loop.job_state import JobState
from vcdl.wire.layout import Vector
from vcdl.wire.taken import TOLD_EPOCHS
from vcdl.wire.workunit import Named, Training, Transport, UpdateHeader, Workunit

TRANSPORT = Transport(up=Named("top_k", {"share": 0.05}), compress=True, feedback=True)
UP = up_encoding(TRANSPORT, WITH_MOMENTS)
SIZE, MODEL = UP.layout.size, UP.model_size
BASE = np.zeros(SIZE, np.float32)
TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mse"))
CHANGE = np.abs(changes(SIZE))
EVEN = np.abs(np.random.default_rng(1).standard_normal(SIZE)).astype(np.float32)
"""A change of which the largest twentieth is a small part."""
SHARDS = 50


class Server:
    """The part of the loop that says in each workunit which uploads count, and the sum of what was applied."""

    def __init__(self, folder: Path, transport: Transport = TRANSPORT) -> None:
        self.upload, self.transport = folder / "update.h5", transport
        self.state = JobState.of(a_plan(shards=SHARDS, validate_every=1, needs_bases=True, hosts_remember=True))
        self.total = np.zeros(MODEL, np.float32)
        self._made = 0

    def trains(self, host: HostMemory, shard: int, trained: Vector, epoch: int = 1, arrives: bool = True) -> Vector:
        """A host trains a subtask; returns the change in its upload, which is applied if it arrives."""
        self._made += 1
        taken = self.state.taken_marks(epoch)
        workunit = Workunit("j", epoch, shard, 0, 0, 7, TRAINING, self.transport, taken=taken)
        workunit = Workunit.from_json(workunit.to_json())
        train_s = 60.0 + self._made / 7
        header = UpdateHeader("j", workunit.name, 0, UP.layout.fingerprint, 10, 1.0, train_s, 0.5, codec=UP.label)
        write_upload(up_encoding(self.transport, WITH_MOMENTS), self.upload, trained, BASE, header, workunit, host)
        change: Vector = UP.read(self.upload)[0][:MODEL]
        if arrives:
            applied = UpdateApplied(workunit.name, self._made, 0, 0, 1.0, 10, 1.0, train_s, 0.5, 1)
            self.state.follow(Recorded(self._made, float(self._made), applied))
            self.total += change
        return change


@pytest.fixture
def host(tmp_path: Path) -> HostMemory:
    (tmp_path / "host").mkdir()
    return HostMemory(tmp_path / "host")


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def another(host: HostMemory) -> HostMemory:
    """A second host."""
    folder = host.folder.with_name("another")
    folder.mkdir(exist_ok=True)
    return HostMemory(folder)


@pytest.mark.slow
def test_what_an_upload_leaves_out_comes_with_the_next_ones(host: HostMemory, server: Server) -> None:
    once = server.trains(host, 0, CHANGE)
    rest = CHANGE[:MODEL] - once
    assert 0 < np.count_nonzero(once) < 0.1 * MODEL
    later = sum((server.trains(host, shard, BASE) for shard in range(1, 41)), np.zeros(MODEL, np.float32))
    assert np.abs(rest).sum() * 0.3 < later.sum() < np.abs(rest).sum(), "a rest that grows old counts for less"
    assert [path.name[:14] for path in host.folder.iterdir()] == ["vcdl_residual_"]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("again_by", ["the same host", "another host"])
def test_a_change_whose_upload_is_lost_counts_once(host: HostMemory, server: Server, again_by: str) -> None:
    """Its subtask is trained again. When a lost upload's rest was sent too, 1.39 and 1.41 of it came in 60 turns."""
    server.trains(host, 0, EVEN, arrives=False)
    server.trains(host, 1, BASE)  # meanwhile
    hosts = [host, host if again_by == "the same host" else another(host)]
    server.trains(hosts[1], 0, EVEN)
    for turn in range(60):
        for one in hosts:
            server.trains(one, 1 + turn % (SHARDS - 1), BASE)
    came = server.total.sum() / EVEN[:MODEL].sum()
    assert came == pytest.approx(0.78, abs=0.03), "as when nothing is lost: the decay takes the rest"


def test_what_an_upload_left_out_waits_until_the_upload_counts(host: HostMemory, server: Server) -> None:
    server.trains(host, 0, CHANGE, arrives=False)
    assert not server.trains(host, 1, BASE).any()
    assert len(list(host.folder.iterdir())) == 2, "its subtask is still open: the upload may be on its way"
    server.trains(another(host), 0, CHANGE)
    assert not server.trains(host, 2, BASE).any()
    assert [path.name.split("_")[4] for path in host.folder.iterdir()] == ["2"], "forgotten, as another's counts"


def test_a_subtask_that_is_made_again_takes_its_rest_along(host: HostMemory, server: Server) -> None:
    """Its update was taken back as a lie's neighbour, so its change comes again with another upload."""
    server.trains(host, 0, CHANGE)
    name = "j_e0001_s000_a0_v000000"
    convicted = HostConvicted("liar", name, (), again=(name,))
    server.state.follow(Recorded(90, 90.0, convicted))
    assert not server.trains(host, 1, BASE).any()


def test_a_host_that_was_away_for_epochs_forgets(host: HostMemory, server: Server) -> None:
    server.trains(host, 0, CHANGE)
    assert not server.trains(host, 0, BASE, epoch=1 + TOLD_EPOCHS).any()
    server.trains(host, 1, CHANGE, epoch=1 + TOLD_EPOCHS)
    assert server.trains(host, 1, BASE, epoch=2 * TOLD_EPOCHS).any()


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None], ids=["empty", "half", "not finite"])
def test_a_damaged_memory_is_forgotten(host: HostMemory, server: Server, damage: bytes | None) -> None:
    server.trains(host, 0, CHANGE)
    (kept,) = host.folder.iterdir()
    if damage is None:
        np.save(kept, np.full(MODEL, np.nan, np.float32))
    else:
        kept.write_bytes(damage)
    assert not server.trains(host, 1, BASE).any()


def test_an_old_memory_of_any_job_is_removed(host: HostMemory, server: Server) -> None:
    old = host.folder / "vcdl_residual_0123456789abcdef.npy"
    old.write_bytes(b"x")
    os.utime(old, (0, 0))
    server.trains(host, 0, CHANGE)
    assert not old.exists()


def test_a_full_disk_loses_the_rest_and_not_the_upload(host: HostMemory, server: Server) -> None:
    with files_limited_to(200_000):
        assert server.trains(host, 0, CHANGE).any()
    assert list(host.folder.iterdir()) == []


def test_a_host_with_a_slow_link_sends_less_within_the_job_s_bounds(host: HostMemory, tmp_path: Path) -> None:
    server = Server(tmp_path, replace(TRANSPORT, upload_share=0.2, feedback=False))
    counts = [
        np.count_nonzero(server.trains(replace(host, upload_bytes_per_s=rate), 0, CHANGE)) / MODEL
        for rate in (1.0, 10_500.0, None)
    ]
    assert (counts[0], counts[2]) == pytest.approx((0.0025, 0.05), abs=0.001)
    assert counts[0] < counts[1] < counts[2]


def test_boinc_knows_how_fast_its_host_uploads_and_may(tmp_path: Path) -> None:
    project, slot = tmp_path / "projects" / "example.org", tmp_path / "slots" / "0"
    for folder in (project, slot):
        folder.mkdir(parents=True)
    init = InitData(project)
    assert HostMemory.of_boinc(init, slot).upload_bytes_per_s is None
    state = "<client_state>\n<net_stats>\n    <bwup>24831.5</bwup>\n</net_stats>\n</client_state>\n"
    (tmp_path / "client_state.xml").write_text(state)
    for limit, rate in (("", 24831.5), ("0.000000", 24831.5), ("4000.000000", 4000.0), ("90000.0", 24831.5)):
        told = f"   <max_bytes_sec_up>{limit}</max_bytes_sec_up>\n"
        (slot / "init_data.xml").write_text(f"<app_init_data>\n<global_preferences>\n{told}</global_preferences>\n")
        assert HostMemory.of_boinc(init, slot) == HostMemory(project, rate)
