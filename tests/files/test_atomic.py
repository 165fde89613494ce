"""A file that is written is there whole or not at all: whatever fails, and whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.full_disk import disk_of, fill
from tests.leftovers import ended_pid, leave_half, temporary_of
from vcdl.files.atomic import PRIVATE_MODE, atomic_write, final_name, is_leftover, keep_first, sweep, temporary_name

KEEP_FIRST = """
import os, sys, time
from pathlib import Path
from vcdl.files.atomic import keep_first
while not os.path.exists(sys.argv[2]):
    pass
print(keep_first(Path(sys.argv[1]), str(os.getpid()).encode()).decode())
"""
WRITE_FOR_EVER = """
import sys
from pathlib import Path
from vcdl.files.atomic import atomic_write
number = 0
while True:
    for path in map(Path, sys.argv[1:]):
        with atomic_write(path) as temporary, temporary.open("w", buffering=1) as file:
            for _ in range(200):
                file.write(f"{number}\\n")
    number += 1
"""


def test_a_file_is_as_it_was_until_it_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".json"), "some libraries go by the suffix"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_private_file_is_its_owner_s_from_the_first_byte_on(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "password"
    path.write_text("of an earlier version")
    path.chmod(0o666)
    tmp_path.chmod(0o2777)
    old = os.umask(umask)
    try:
        with atomic_write(path, private=True) as temporary:
            temporary.write_text("secret")
            assert temporary.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
    assert path.read_text() == "secret"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [OSError("full"), ValueError("ours"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_file_as_it_was_and_raises_what_happened(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.process
@pytest.mark.parametrize("durable", [False, True])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, durable: bool) -> None:
    with disk_of(1 << 20, tmp_path / "disk") as disk:
        path = disk / "params.h5"
        path.write_bytes(b"old")
        filling = fill(disk, but_for_bytes=8192)
        with pytest.raises(OSError, match="No space left"), atomic_write(path, durable=durable) as temporary:
            temporary.write_bytes(bytes(100_000))
        assert path.read_bytes() == b"old"
        assert sorted(disk.iterdir()) == [filling, path]


def test_a_durable_file_is_synced_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "a", list[bool]()

    def sync(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
        sync(descriptor)
        synced.append(path.exists())

    monkeypatch.setattr(os, "fsync", sync)
    for durable, expected in ((False, []), (True, [False])):
        with atomic_write(path, durable=durable) as temporary:
            temporary.write_bytes(b"1")
        assert synced == expected
        path.unlink()


def test_what_an_earlier_process_of_this_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "kept.h5"
    source.write_text("whole")
    temporary_name(path).write_text("half")
    with atomic_write(path) as temporary:
        os.link(source, temporary)
    assert path.read_text() == "whole"


@pytest.mark.process
def test_the_files_of_processes_that_ended_are_swept_and_no_others(tmp_path: Path) -> None:
    whole, below = tmp_path / "params_v000003.h5", tmp_path / "slots" / "job_e0" / "checkpoint.npz"
    below.parent.mkdir(parents=True)
    own, running = temporary_name(whole), temporary_of(os.getppid(), whole)
    swept = [own, leave_half(whole), leave_half(tmp_path / "noending")]
    strangers = [tmp_path / ".bashrc", tmp_path / f".x.{ended_pid()}.h5", tmp_path / f"x.{ended_pid()}.tmp"]
    others = [whole, running, *strangers, leave_half(below)]
    for path in (own, whole, running, *strangers):
        path.write_bytes(b"half")
    assert [is_leftover(path.name) for path in swept] == [True, True, True]
    sweep(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(others)
    sweep(tmp_path, below=True)
    assert list(below.parent.iterdir()) == []
    sweep(tmp_path / "none")


@pytest.mark.process
def test_kill_9_while_files_are_written_leaves_whole_files_and_what_can_be_swept(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.h5", "noending")]
    for _ in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, *map(str, paths)]) as writer:
            while not all(path.exists() for path in paths):
                assert writer.poll() is None
                time.sleep(0.001)
            stop_in_the_middle_of_a_file(writer, tmp_path)
            writer.send_signal(signal.SIGKILL)
        for path in paths:
            lines = path.read_text().splitlines()
            assert len(lines) == 200
            assert len(set(lines)) == 1, "a mixture of two"
        (half,) = set(tmp_path.iterdir()) - set(paths)
        assert is_leftover(half.name)
        assert half.with_name(final_name(half.name)) in paths
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted(paths)
        paths[-1].unlink()


def stop_in_the_middle_of_a_file(writer: subprocess.Popen[bytes], folder: Path) -> None:
    """Stop a writer with one of its files half written, however busy the machine is."""
    while True:
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        if any(final_name(path.name) != path.name for path in folder.iterdir()):
            return  # looked at while it stands: it cannot have finished the file since
        writer.send_signal(signal.SIGCONT)
        time.sleep(0.001)


@pytest.mark.process
def test_processes_that_write_the_same_file_leave_the_whole_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(path)]) for _ in range(2)]
    while not path.exists():
        time.sleep(0.001)
    for _ in range(300):
        lines = path.read_text().splitlines()
        assert (len(lines), len(set(lines))) == (200, 1)
    for writer in writers:
        assert writer.poll() is None, "it was disturbed by the other"
        writer.kill()
        writer.wait()


@pytest.mark.process
@pytest.mark.slow
def test_processes_that_come_at_once_all_keep_the_first_ones_content(tmp_path: Path) -> None:
    """Each kept a key of its own: a service took all pilots but one of a node for another machine's."""
    for number in range(5):
        path, begin = tmp_path / f"key{number}", tmp_path / f"begin{number}"
        several = [
            subprocess.Popen(
                [sys.executable, "-c", KEEP_FIRST, str(path), str(begin)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(6)
        ]
        time.sleep(0.5)
        begin.touch()
        assert len({process.communicate()[0] for process in several}) == 1
        assert path.stat().st_mode & 0o777 == PRIVATE_MODE
        assert not list(tmp_path.glob(".*"))


def test_where_a_folder_has_no_links_a_secret_is_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert keep_first(tmp_path / "key", b"one") == b"one"
    assert keep_first(tmp_path / "key", b"two") == b"one"


def test_a_secret_that_does_not_fit_on_the_disk_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half was kept as the secret, and each later process took it for whole."""

    def write_half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space left"):
        keep_first(tmp_path / "key", b"one")
    assert list(tmp_path.iterdir()) == []
