"""Files of weights after a reboot: which are checked, and what becomes of damaged ones."""

from pathlib import Path

import pytest

from tests.loop.test_recovery import served, zeroed
from tests.served_run import ServedRun, noise
from vcdl.journal import clock
from vcdl.journal.events import FilesChecked
from vcdl.loop.checked_files import check_files

pytestmark = pytest.mark.server

WEIGHTS = 1000


@pytest.fixture
def run(redis_url: str, tmp_path: Path) -> ServedRun:
    """Three updates, and snapshots of versions 0 and 3."""
    run = ServedRun.new(tmp_path / tmp_path.name, noise(0, WEIGHTS), redis_url)
    for number in range(3):
        run.bring(number, noise(number + 1, WEIGHTS))
    served(run).run_once()
    run.run.snapshots(run.store).keep_newest()
    return run


def reboot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str = "another") -> None:
    (tmp_path / name).write_text(name)
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / name)


def checked(run: ServedRun) -> list[FilesChecked]:
    check_files(run.run, run.store, run.run.journal())
    events = [row.event for row in run.run.journal().read()]
    return [event for event in events if isinstance(event, FilesChecked)]


def test_files_are_checked_once_after_each_reboot(
    run: ServedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert checked(run) == [], "the machine runs since the run began"
    reboot(monkeypatch, tmp_path)
    assert checked(run) == checked(run) == [FilesChecked("another", 5)]
    reboot(monkeypatch, tmp_path, "third")
    assert checked(run)[1:] == [FilesChecked("third", 5)]


def test_damaged_files_are_named_and_removed(run: ServedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (kept,) = run.folder.kept_uploads.glob("v000002_*.h5")
    snapshot = run.folder.snapshot(3)
    zeroed(kept)
    zeroed(snapshot)
    reboot(monkeypatch, tmp_path)
    assert checked(run) == [FilesChecked("another", 5, f"{kept.name} {snapshot.name}")]
    assert not kept.exists()
    assert not snapshot.exists()
