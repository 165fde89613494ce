"""Full disks: real ones, where a disk can be had, and their errors without one."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """No file may grow beyond a size. Only around what is tested: pytest's own output may go to a file, too.

    Byte-code is not written meanwhile: Python keeps what became of it, and no later test could import that module.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_none


@contextmanager
def disk_of(size_bytes: int, path: Path) -> Iterator[Path]:
    """A disk in memory, mounted on a new folder; the test is skipped where none can be mounted."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path, but_for_bytes: int = 0) -> Path:
    """Leave no room, or hardly any; returns the file to remove."""
    path = disk / "fill"
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            file.truncate(file.tell() - but_for_bytes)
            return path
    raise AssertionError("a disk without end")
