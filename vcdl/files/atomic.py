"""Files that are there whole or not at all, and what a killed process leaves of one.

A file grows under a temporary name beside its own, `.STEM.PID.tmp.SUFFIX`, and takes its own name when it is whole.
"""

import contextlib
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


@contextmanager
def atomic_write(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[Path]:
    """A temporary name to write to, with the suffix of `path`: the file takes the place of `path` when the
    block ends well.

    `durable`: the content is on the disk before the file takes its place. So a power cut leaves the old one or
    the new one, too. `private`: only the owner may read or write the file, from its first byte on, whatever the
    umask and the folder allow. Raises OSError (a full disk, a read-only folder). `path` is then as it was, and
    nothing else is left.
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
    """Whether a name is the temporary one of a process that has ended on this machine.

    This process itself must not be writing the file: its number may have been that of an ended one.
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and not _is_another_running(match["pid"])


def sweep(folder: Path, *, below: bool = False) -> None:
    """Remove the leftovers in a folder, `below`: also in the folders below it. This process must be writing
    none of its files.

    What another process is writing is left alone, and so is what may not be removed.
    """
    for parent, _, names in os.walk(folder):
        for name in filter(is_leftover, names):
            with contextlib.suppress(OSError):
                Path(parent, name).unlink()
        if not below:
            return


def _is_another_running(pid: str) -> bool:
    """Where the system does not say, every other process is taken for running."""
    return int(pid) != os.getpid() and (not _PROCESSES.is_dir() or (_PROCESSES / pid).exists())


def sync(path: Path) -> None:
    """Have a file's content, or the names in a folder, outlive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows syncs only what may be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
