"""New work stops before a disk is full, says so once, and begins again by itself."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vcdl.boinc.grid import disk_room
from vcdl.boinc.grid.disk_room import DiskRoom
from vcdl.boinc.grid.project_folder import BoincProject


def test_work_stops_below_two_and_goes_on_from_three_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = dict.fromkeys(("path", "download_dir", "upload_dir", "log_dir", "runs_folder"), tmp_path)
    project = cast(BoincProject, SimpleNamespace(db_host="localhost", **folders))
    free = SimpleNamespace(free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    monkeypatch.setattr(disk_room, "_DATABASE", Path("/nowhere"))
    (tmp_path / "vcdl").mkdir()
    room = DiskRoom(project, "digits")
    with caplog.at_level(logging.INFO):
        shorts = []
        for gib in (2.5, 1.9, 2.5, 1.0, 2.5, 3.1, 2.5):
            free.free = int(gib * (1 << 30))
            shorts.append(room.is_short())
            if gib == 1.0:
                room = DiskRoom(project, "digits")  # of a daemon that was started again
    assert shorts == [False, True, True, True, True, False, False]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"], "each daemon tells once"
    assert "no new work is made until 3 are" in caplog.records[0].message
