"""Write files atomically: a file appears whole or not at all. Until then it has the name `.STEM.PID.tmp.SUFFIX`."""

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
"""The mode of a file that contains a secret, so that only its owner can read it."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block succeeds; on an error nothing remains.

    Args:
        path: The final name.
        durable: Sync the file first, so that it survives a power cut.
        private: Restrict the file to its owner from the first byte on.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = temporary_name(path)
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process with the same PID
        # Set the mode before the block writes. If it were changed afterwards, others could read the file for an
        # instant.
        if private:
            temporary.touch(PRIVATE_MODE, exist_ok=False)
        yield temporary
        # Sync before the rename: otherwise a power cut may leave an empty file under the final name.
        if durable:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the block may not have created it
            temporary.unlink()
        raise


def keep_first(path: Path, content: bytes) -> bytes:
    """Write a private file unless it exists, and return the file's content.

    If several processes call this at once, all get the content of the first one, so that they share one secret.

    Raises:
        OSError: The file cannot be written or read.
    """
    if not path.exists():
        temporary = temporary_name(path)
        temporary.unlink(missing_ok=True)
        temporary.touch(PRIVATE_MODE, exist_ok=False)
        try:
            temporary.write_bytes(content)
            try:
                path.hardlink_to(temporary)
            except FileExistsError:  # another process was first
                pass
            except OSError:  # some network file systems have no links: the last process wins there
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path.read_bytes()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path like `atomic_write`, but raise RunFolderError with advice instead of OSError."""
    with folder_errors(path.parent), atomic_write(path) as temporary:
        yield temporary


def temporary_name(path: Path) -> Path:
    """Return the temporary name under which this process writes the file `path`."""
    return path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")


def final_name(name: str) -> str:
    """Return the final name of a temporary file; any other name is returned unchanged."""
    match = _TEMPORARY.fullmatch(name)
    return name if match is None else f"{match['stem']}{match['suffix'] or ''}"


def is_leftover(name: str) -> bool:
    """Return whether a file name is the temporary one of a process that has ended, so that the file can be removed.

    Do not call this for files that this process is writing: its own PID counts as ended, as a killed process may have
    had it.
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and not _is_another_running(match["pid"])


def sweep(folder: Path, *, below: bool = False) -> None:
    """Remove the temporary files that killed processes have left in a folder.

    Do not call this while this process writes a file in the folder. Files of other running processes, and those that
    cannot be removed, stay.

    Args:
        folder: The folder.
        below: Whether to look in its subfolders, too.
    """
    for parent, _, names in os.walk(folder):
        for name in filter(is_leftover, names):
            with contextlib.suppress(OSError):
                Path(parent, name).unlink()
        if not below:
            return


def _is_another_running(pid: str) -> bool:
    """Return whether a PID belongs to another running process. Without /proc every other process counts as running."""
    # If the PID belongs to a new process by now, the leftover stays until a later sweep. Removing the file of a live
    # process would be worse.
    return int(pid) != os.getpid() and (not _PROCESSES.is_dir() or (_PROCESSES / pid).exists())


def sync(path: Path) -> None:
    """Sync a file's content, or the names in a folder, so that they survive a power cut. Raises OSError."""
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
