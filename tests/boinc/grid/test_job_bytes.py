"""The bytes of a job by what they are, and its quota, which stops new work of it alone."""

import logging
import os
from pathlib import Path

import pytest

from vcdl.boinc.grid import disk_room
from vcdl.boinc.grid.disk_room import DiskRoom
from vcdl.boinc.grid.download_folder import Content
from vcdl.boinc.grid.job_bytes import JobBytes, check_room, over_quota
from vcdl.boinc.grid.manifest import Manifest, Manifests
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError

CONFIG = """<boinc><config><master_url>http://a.example/p/</master_url><db_name>p</db_name><host>h</host>
<download_dir>download</download_dir><upload_dir>upload</upload_dir><uldl_dir_fanout>0</uldl_dir_fanout>
</config></boinc>"""


def put(path: Path, size_bytes: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size_bytes)
    return path


@pytest.fixture
def project(tmp_path: Path) -> BoincProject:
    (tmp_path / "config.xml").write_text(CONFIG)
    found = BoincProject.at(tmp_path)
    run = found.run_folder("digits")
    shard, model = put(run.shard(0), 1000), put(run.model_file, 10)
    put(run.journal_file, 200)
    put(run.path / "journal.db-wal", 20)
    put(run.snapshot(1), 300)
    put(run.path / "store/weights.bin", 30)
    put(run.path / "kept/update_0.h5", 4000)
    put(found.upload_dir / "digits_e0001_s000_a00_v000003_0_r1_0", 50_000)
    put(found.upload_dir / "others_e0001_s000_a00_v000003_0_r1_0", 9_000_000)
    content = {number: Content.of(path) for number, path in enumerate((shard, model))}
    found.download_dir.mkdir()
    os.link(shard, found.download_path(content[0].name))  # the same bytes, as staging has it
    put(found.download_path(f"{content[0].name}.gz"), 600_000)
    with Manifests(found).locked():
        Manifests(found).write("digits", Manifest(1, "", model=content[1], shards={0: content[0]}))
    return found


def test_each_byte_counts_once_and_under_its_name(project: BoincProject) -> None:
    found = JobBytes.of(project, "digits")
    assert found == JobBytes(data=1000, weights=330, journal=220, kept=4000, waiting=50_000, staged=600_000, other=10)
    assert found.total == 655_560


def test_a_job_in_the_making_is_refused_with_what_it_would_need(project: BoincProject) -> None:
    check_room(project, "digits", 0.1)
    environment = project.path / "vcdl/environment"
    environment.write_text("VCDL_JOB_QUOTA_GB=0.001\n")
    check_room(project, "digits", 0.1)
    environment.write_text("VCDL_JOB_QUOTA_GB=0.0006\n")
    with pytest.raises(GridError, match=r"digits needs at least 0\.000665 GB of .* \(1e-05 for its data\)"):
        check_room(project, "digits", 0.1)


def test_a_job_over_its_quota_gets_no_new_work_until_it_holds_less(
    project: BoincProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(disk_room, "free_by_folder", lambda _: {project.path: 1 << 40})
    environment = project.path / "vcdl/environment"
    environment.write_text("VCDL_JOB_QUOTA_GB=0.0005\n")
    monkeypatch.setattr(disk_room, "_QUOTA_EVERY_S", 0.0)
    room, other = DiskRoom(project, "digits"), DiskRoom(project, "others")
    with caplog.at_level(logging.INFO):
        assert [room.is_short(), room.is_short(), other.is_short()] == [True, True, True]
        (project.upload_dir / "others_e0001_s000_a00_v000003_0_r1_0").unlink()
        assert not other.is_short()
        environment.write_text("VCDL_JOB_QUOTA_GB=1\n")
        assert not room.is_short()
    assert "digits holds 0.00 GB, and its quota is 0.0005" in caplog.text
    assert caplog.text.count("digits holds") == 1
    assert "digits is within its quota again" in caplog.text
    environment.write_text("VCDL_JOB_QUOTA_GB=much\n")
    with pytest.raises(GridError, match="give a number of gigabytes"):
        over_quota(project, "digits")
