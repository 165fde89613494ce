"""A lock keeps other processes out for as long as its holder lives, and no longer."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.full_disk import disk_of, fill
from vcdl.files.lock import FileLock, holder_of, locked

pytestmark = pytest.mark.process

HOLD = """
import sys, time
from pathlib import Path
from vcdl.files.lock import FileLock
how = sys.argv[2].split()
with FileLock(Path(sys.argv[1]), names_holder=True, is_record="record" in how) as lock:
    lock.acquire(shared="shared" in how)
    print("held", flush=True)
    time.sleep(600)
"""
COUNT = """
import sys
from pathlib import Path
from vcdl.files.lock import locked
path = Path(sys.argv[1])
for _ in range(200):
    with locked(path.with_suffix(".lock")):
        path.write_text(str(int(path.read_text()) + 1))
"""


@contextmanager
def held_by_another(path: Path, how: str = "") -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), how], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.mark.parametrize("how", ["", "record"])
def test_it_is_had_by_one_and_by_the_next_once_its_holder_was_killed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "run.lock"
    with held_by_another(path, how) as holder, FileLock(path, is_record=how == "record") as lock:
        assert not lock.acquire(wait_s=0)
        begin_s = time.monotonic()
        assert not lock.acquire(wait_s=0.2)
        assert time.monotonic() - begin_s >= 0.2
        assert lock.holder() == holder.pid
        threading.Timer(0.2, holder.kill).start()
        assert lock.acquire(wait_s=60)


def test_waiting_without_end_ends_with_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "restore.lock"
    with held_by_another(path) as holder:
        killer = threading.Timer(0.2, holder.kill)
        killer.start()
        with locked(path):
            assert killer.finished.is_set()


def test_shared_holders_do_not_keep_each_other_out(tmp_path: Path) -> None:
    path = tmp_path / "restore.lock"
    with held_by_another(path, "shared"), FileLock(path) as lock:
        assert lock.acquire(shared=True, wait_s=0)
        lock.release()
        assert not lock.acquire(wait_s=0), "alone"
    with held_by_another(path), FileLock(path) as lock:
        assert not lock.acquire(shared=True, wait_s=0)


def test_who_holds_it_is_seen_without_taking_it_from_anybody(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    assert holder_of(path) is None
    assert not path.exists()
    with held_by_another(path) as holder:
        assert holder_of(path) == holder.pid
    assert holder_of(path) is None, "its number is still in the file"
    with held_by_another(path, "shared"):
        assert holder_of(path) is None
    with locked(path):
        path.write_text("no number")
        assert holder_of(path) == 0


def test_a_file_of_data_is_locked_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "update.h5"
    with pytest.raises(FileNotFoundError):
        FileLock(path, existing=True)
    path.write_bytes(b"weights")
    path.chmod(0o400)
    with FileLock(path, existing=True) as lock:
        assert lock.acquire(wait_s=0)
        with FileLock(path, existing=True) as other:
            assert not other.acquire(wait_s=0)
    assert path.read_bytes() == b"weights"


def test_processes_that_contend_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    counting = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)]) for _ in range(3)]
    assert [process.wait() for process in counting] == [0, 0, 0]
    assert path.read_text() == "600"


def test_a_record_lock_is_the_kind_that_other_programs_of_boinc_take(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "boinc_lockfile", "record"), (tmp_path / "boinc_lockfile").open("r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_on_a_full_disk_is_had_and_one_that_names_its_holder_says_why_not(tmp_path: Path) -> None:
    with disk_of(1 << 20, tmp_path / "disk") as disk:
        fill(disk)
        with locked(disk / "lock"), FileLock(disk / "lock") as other:
            assert not other.acquire(wait_s=0)
        with FileLock(disk / "run.lock", names_holder=True) as lock:
            with pytest.raises(OSError) as caught:
                lock.acquire(wait_s=0)
            assert caught.value.errno == errno.ENOSPC
        with FileLock(disk / "run.lock") as lock:
            assert lock.acquire(wait_s=0), "nothing is held after that"


def test_a_child_process_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    with FileLock(tmp_path / "lock") as lock:
        assert lock.acquire(wait_s=0)
    child.kill()
    child.wait()
    assert os.path.getsize(tmp_path / "lock") == 0
