"""What a host remembers between its subtasks: nothing of a change is lost for good, and nothing is sent twice."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.codecs.encodings import WITH_MOMENTS, changes
from tests.full_disk import files_limited_to
from vcdl.client.residual import HostMemory, write_upload
from vcdl.codecs.choose import up_encoding
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import Named, Transport, UpdateHeader

TRANSPORT = Transport(up=Named("top_k", {"share": 0.05}), compress=True, feedback=True)
UP = up_encoding(TRANSPORT, WITH_MOMENTS)
SIZE, MODEL = UP.layout.size, UP.model_size
BASE = np.zeros(SIZE, np.float32)
HEADER = UpdateHeader("j", "j_e0001_s000_a0_v000000", 0, UP.layout.fingerprint, 10, 1.0, 60.0, 0.5, codec=UP.label)
CHANGE = np.abs(changes(SIZE))


@pytest.fixture
def host(tmp_path: Path) -> HostMemory:
    (tmp_path / "host").mkdir()
    return HostMemory(tmp_path / "host")


def sent(host: HostMemory, trained: Vector, transport: Transport = TRANSPORT) -> Vector:
    """The change of an upload, as the server reads it."""
    path = host.folder.parent / "update.h5"
    write_upload(up_encoding(transport, WITH_MOMENTS), path, trained, BASE, HEADER, transport, host)
    return UP.read(path)[0][:MODEL]


@pytest.mark.slow
def test_what_an_upload_leaves_out_comes_with_the_next_ones(host: HostMemory) -> None:
    once = sent(host, CHANGE)
    rest = CHANGE[:MODEL] - once
    assert 0 < np.count_nonzero(once) < 0.1 * MODEL
    later = sum((sent(host, BASE) for _ in range(40)), np.zeros(MODEL, np.float32))
    assert np.abs(rest).sum() * 0.3 < later.sum() < np.abs(rest).sum(), "a rest that grows old counts for less"
    assert [path.name[:14] for path in host.folder.iterdir()] == ["vcdl_residual_"]


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None], ids=["empty", "half", "not finite"])
def test_a_damaged_memory_is_forgotten(host: HostMemory, damage: bytes | None) -> None:
    sent(host, CHANGE)
    (kept,) = host.folder.iterdir()
    if damage is None:
        np.save(kept, np.full(MODEL, np.nan, np.float32))
    else:
        kept.write_bytes(damage)
    assert not sent(host, BASE).any()


def test_an_old_memory_of_any_job_is_removed(host: HostMemory) -> None:
    old = host.folder / "vcdl_residual_0123456789abcdef.npy"
    old.write_bytes(b"x")
    os.utime(old, (0, 0))
    sent(host, CHANGE)
    assert not old.exists()


def test_a_full_disk_loses_the_rest_and_not_the_upload(host: HostMemory, tmp_path: Path) -> None:
    with files_limited_to(200_000):
        assert sent(host, CHANGE).any()
    assert list(host.folder.iterdir()) == []


def test_a_host_with_a_slow_link_sends_less_within_the_job_s_bounds(host: HostMemory) -> None:
    transport = replace(TRANSPORT, upload_share=0.2, feedback=False)
    counts = [
        np.count_nonzero(sent(replace(host, upload_bytes_per_s=rate), CHANGE, transport)) / MODEL
        for rate in (1.0, 10_500.0, None)
    ]
    assert (counts[0], counts[2]) == pytest.approx((0.0025, 0.05), abs=0.001)
    assert counts[0] < counts[1] < counts[2]


def test_boinc_knows_how_fast_its_host_uploads_and_may(tmp_path: Path) -> None:
    project, slot = tmp_path / "projects" / "example.org", tmp_path / "slots" / "0"
    for folder in (project, slot):
        folder.mkdir(parents=True)
    assert HostMemory.of_boinc(project, slot).upload_bytes_per_s is None
    state = "<client_state>\n<net_stats>\n    <bwup>24831.5</bwup>\n</net_stats>\n</client_state>\n"
    (tmp_path / "client_state.xml").write_text(state)
    for limit, rate in (("", 24831.5), ("0.000000", 24831.5), ("4000.000000", 4000.0), ("90000.0", 24831.5)):
        told = f"   <max_bytes_sec_up>{limit}</max_bytes_sec_up>\n"
        (slot / "init_data.xml").write_text(f"<app_init_data>\n<global_preferences>\n{told}</global_preferences>\n")
        assert HostMemory.of_boinc(project, slot) == HostMemory(project, rate)
