"""The times of a journal when the wall clock is set, by an hour, in either direction."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.read_only import read_only
from vcdl.journal import clock
from vcdl.journal.events import RunPaused, RunStarted
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal

HOUR_S = 3600.0
Jump = Callable[[float], None]


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """The wall clock was set before the next process began: it then finds another zero of the monotonic clock."""
    zero_s = clock._MADE_S

    def by(seconds: float) -> None:
        monkeypatch.setattr(clock, "_MADE_S", zero_s + seconds)

    return by


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Another boot of the machine."""

    def now() -> None:
        (tmp_path / "boot_id").write_text("another-boot")
        monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / "boot_id")

    return now


def appended(path: Path) -> list[float]:
    journal = Journal.at(path)
    journal.append(RunPaused("interrupted"))
    times = [row.time_s for row in journal.read()]
    journal.close()
    return times


@pytest.mark.process
@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
def test_processes_that_begin_before_and_after_a_jump_write_the_same_time(
    tmp_path: Path, jump: Jump, seconds: float
) -> None:
    path, began_s = tmp_path / "journal.db", time.time()
    appended(path)
    jump(seconds)
    times = appended(path)
    assert times == sorted(times)
    assert began_s - 1 < times[0] <= times[-1] < began_s + 60
    with read_only(tmp_path) as folder:
        reader = Journal.read_only(folder / "journal.db")
        assert times[-1] <= reader.now_s() < began_s + 60, "a reader has the same clock"
        reader.close()


def test_after_a_reboot_time_goes_on_from_the_wall_clock_and_never_back(
    tmp_path: Path, jump: Jump, reboot: Callable[[], None]
) -> None:
    path = tmp_path / "journal.db"
    (first,) = appended(path)
    reboot()
    jump(-HOUR_S)
    assert first <= appended(path)[-1] < first + 60
    (tmp_path / "boot_id").write_text("a third one")
    jump(HOUR_S)
    assert appended(path)[-1] > first + HOUR_S - 60


def test_running_time_never_goes_back_whatever_order_processes_write_in(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    for time_s in (100.0, 160.0, 150.0, 170.0):
        journal.append(RunStarted(False) if time_s == 100.0 else RunPaused("x"), time_s=time_s)
    history, seen = JobHistory(), []
    for recorded in journal.read()[:3]:
        history.follow(recorded)
        seen.append(history.wall_s)
    assert seen == [0.0, 60.0, 60.0]
    journal.close()
