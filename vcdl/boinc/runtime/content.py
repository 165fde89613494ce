"""Check a runtime before it is packed: its links and paths, and, on its own platform, that it starts."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.runtime.interpreter import fault_of_program, runs_here
from vcdl.boinc.runtime.platforms import PROGRAM, Platform, packages_folder

_LONGEST_PATH = 200
"""Most characters of a path, so that it fits mounts of other systems with their limit of 260."""
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
_IMPORTED = ("numpy", "h5py", "keras", "ssl", "sqlite3", "lzma", "zipimport", "ctypes", "multiprocessing")
_LIBRARY_NAMES = ("*.so", "*.so.*", "python3.*")


def glibc_of(folder: Path) -> str:
    """Return the newest version of the GNU C library named by any program or library below the folder, or ""."""
    # Versioned symbols are plain text in each library that uses them, so no tool for ELF files is needed.
    minors = {int(minor) for path in _programs(folder) for minor in _GLIBC.findall(path.read_bytes())}
    return f"2.{max(minors)}" if minors else ""


def _programs(folder: Path) -> Iterator[Path]:
    for pattern in _LIBRARY_NAMES:
        yield from (path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink())


def faults(folder: Path, platform: Platform, minor: str, backend: str) -> list[str]:
    """Return the faults of an unpacked runtime that can be found on this machine; empty if there are none."""
    found = [
        f"{path.relative_to(folder)}: {why}" for path in sorted(folder.rglob("*")) if (why := _fault_of(path, folder))
    ]
    # Try a start only without faulty files: it would fail for the same reason, with a worse message.
    return found or _faults_of_a_start(folder, platform, minor, backend)


def _faults_of_a_start(folder: Path, platform: Platform, minor: str, backend: str) -> list[str]:
    """Start the runtime's Python and import what a client needs; return its last output if that fails.

    Empty if it can, or if programs of the platform do not run here.
    """
    if not runs_here(platform):
        return []
    # Use an empty HOME, because Keras writes its configuration there, and would read the builder's.
    imports = f"import sys; sys.path.append({str(folder / packages_folder(minor))!r}); import {', '.join(_IMPORTED)}"
    with tempfile.TemporaryDirectory(prefix="vcdl-") as home:
        program = folder / PROGRAM
        fault = fault_of_program(program, f"{imports}, {backend}", HOME=home, KERAS_BACKEND=backend)
    return [fault] if fault else []


def _fault_of(path: Path, folder: Path) -> str:
    if path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(folder.resolve())):
        return "a link that leads out of the runtime, or to nothing"
    if len(path.relative_to(folder).as_posix()) > _LONGEST_PATH:
        return f"longer than {_LONGEST_PATH} characters"
    return ""
