"""Files that are there whole or not at all: one grows as `.STEM.PID.tmp.SUFFIX` beside its own name."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.errors import folder_errors

_TEMPORARY = re.compile(r"\.(?P<stem>.+)\.(?P<pid>\d+)\.tmp(?P<suffix>\.[^.]*)?")
_PROCESSES = Path("/proc")

PRIVATE_MODE = 0o600
"""The mode of a file with a secret."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[Path]:
    """A temporary name to write to, which takes the place of `path` when the block ends well; else nothing is left.
    `durable`: it outlives a power cut. `private`: only the owner may read or write it, from its first byte on. Raises
    OSError.
    """
    temporary = temporary_name(path)
    try:
        temporary.unlink(missing_ok=True)  # of a killed process that had this one's number
        if private:
            temporary.touch(PRIVATE_MODE, exist_ok=False)
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # it may never have been there
            temporary.unlink()
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """`atomic_write`, whose errors are those of the folder. Raises RunFolderError."""
    with folder_errors(path.parent), atomic_write(path) as temporary:
        yield temporary


def temporary_name(path: Path) -> Path:
    """The name under which this process writes a file before it takes the name `path`."""
    return path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")


def final_name(name: str) -> str:
    """The name that a file was to take when it has a temporary one; any other name as it is."""
    match = _TEMPORARY.fullmatch(name)
    return name if match is None else f"{match['stem']}{match['suffix'] or ''}"


def is_leftover(name: str) -> bool:
    """Whether a name is the temporary one of an ended process; this one must not be writing the file."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and not _is_another_running(match["pid"])


def sweep(folder: Path, *, below: bool = False) -> None:
    """Remove leftovers in a folder, `below`: and in those below it. What another process writes, or may not be removed,
    is left; this one must write none of its files.
    """
    for parent, _, names in os.walk(folder):
        for name in filter(is_leftover, names):
            with contextlib.suppress(OSError):
                Path(parent, name).unlink()
        if not below:
            return


def _is_another_running(pid: str) -> bool:
    """Where the system does not say, every other process counts as running."""
    return int(pid) != os.getpid() and (not _PROCESSES.is_dir() or (_PROCESSES / pid).exists())


def sync(path: Path) -> None:
    """Have a file's content, or the names in a folder, outlive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows syncs only what may be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
