"""The names in a run's folder, and the lock that keeps a second process out."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vcdl.errors import DISK_FULL, ExitCode, FileUnavailable, RunFolderError, RunFolderFull, Unavailable, folder_error
from vcdl.run.folder import RunFolder, RunIsBusy, RunLock
from vcdl.run.kind import BOINC, LOCAL

HOLD = """
import subprocess, sys, time
from pathlib import Path
from vcdl.run.folder import RunFolder, RunLock
with RunLock(RunFolder(Path(sys.argv[1]))):
    if "with a child" in sys.argv:
        subprocess.Popen(["sleep", "60"])
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


def holder(folder: RunFolder, *options: str) -> subprocess.Popen[bytes]:
    """A process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path), *options], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_the_kind_of_a_run_never_changes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.kind is LOCAL
    folder.create(LOCAL)
    folder.create(BOINC)  # nothing had begun there
    folder.job_file.touch()
    folder.create(LOCAL)
    assert folder.kind is BOINC


@pytest.mark.parametrize("name", ["", "cluster\n", "\xff"])
def test_a_kind_that_this_version_does_not_know_is_refused(folder: RunFolder, name: str) -> None:
    folder.kind_file.write_text(name, encoding="latin-1")
    with pytest.raises(RunFolderError, match=re.escape(str(folder.path))):
        _ = folder.kind


def test_files_that_this_machine_cannot_read_are_named_and_waited_for(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(RunFolderError, match=r"model\.json is missing"):
        folder.read_model_json()
    for path in (folder.kind_file, folder.model_file):
        path.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    for read in (lambda: folder.kind, folder.read_model_json):
        with pytest.raises(FileUnavailable, match=rf"{re.escape(str(tmp_path))}/(host|model.json) is there, but"):
            read()


def test_every_name_lies_in_the_folder_and_no_two_are_the_same(folder: RunFolder) -> None:
    names = [
        value
        for name in dir(RunFolder)
        if not name.startswith("_") and isinstance(value := getattr(folder, name), Path) and name != "path"
    ]
    names += [folder.snapshot(142), folder.shard(7)]
    assert all(name.is_relative_to(folder.path) for name in names)
    assert len(set(names)) == len(names) > 12
    assert folder.snapshot(142).name == "params_v000142.h5"
    assert folder.shard(7).name == "shard_007.npz"


def test_a_folder_without_a_run_is_refused(folder: RunFolder) -> None:
    with pytest.raises(RunFolderError, match=r"holds no run .*vcdl run JOB.yaml"):
        RunFolder.existing(folder.path)
    folder.job_file.write_text("name: x")
    assert RunFolder.existing(folder.path) == folder


@pytest.mark.process
def test_a_second_process_is_kept_out_and_told_which_one_is_in(folder: RunFolder) -> None:
    process = holder(folder)
    try:
        with pytest.raises(
            RunIsBusy, match=f"is being run by process {process.pid}: wait for it, end it with `vcdl stop"
        ) as busy:
            RunLock(folder).__enter__()
        assert busy.value.pid == process.pid == folder.running_pid
        assert busy.value.exit_code == ExitCode.BAD_FOLDER
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_children_that_outlive_the_process_do_not_hold_the_folder(folder: RunFolder) -> None:
    process = holder(folder, "with a child")
    try:
        process.kill()
        process.wait()
        assert folder.running_pid is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the child
        process.communicate()


@pytest.mark.process
def test_asking_who_runs_the_folder_never_keeps_a_run_out(folder: RunFolder) -> None:
    asker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom pathlib import Path\nfrom vcdl.run.folder import RunFolder\n"
            "folder = RunFolder(Path(sys.argv[1]))\nprint('asking', flush=True)\nwhile True: folder.running_pid",
            str(folder.path),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert asker.stdout is not None
        asker.stdout.readline()
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s:
            with RunLock(folder):
                pass
    finally:
        asker.kill()
        asker.communicate()


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"there is no folder .*none: create it, or choose another"):
        RunLock(RunFolder(tmp_path / "none")).__enter__()


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EROFS, "mount its disk so that it can be written"),
        (errno.EACCES, "correct the permissions"),
        (errno.EMFILE, "raise the limit of open files"),
        (errno.EIO, "repair its disk"),
    ],
)
def test_an_error_of_the_folder_says_what_to_do(tmp_path: Path, number: int, cure: str) -> None:
    error = folder_error(tmp_path, OSError(number, os.strerror(number)))
    assert str(error).startswith(f"{tmp_path}: {os.strerror(number)}; {cure}")
    assert "`vcdl resume`" in str(error)
    assert not isinstance(error, Unavailable)


@pytest.mark.parametrize("number", DISK_FULL)
def test_a_full_disk_is_an_error_of_the_folder_that_can_be_waited_for(tmp_path: Path, number: int) -> None:
    error = folder_error(tmp_path, OSError(number, os.strerror(number)))
    assert str(error).startswith(f"{tmp_path}: {os.strerror(number)}; free some space")
    assert "`vcdl resume`" in str(error)
    assert isinstance(error, RunFolderFull)
    assert isinstance(error, Unavailable)
