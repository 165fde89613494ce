"""Writing files of a project: whole or not at all, with the group and mode they had."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.errors import GridError

FILE_MODE = 0o644
PROGRAM_MODE = 0o755
SECRET_MODE = 0o600


def read(path: Path) -> bytes | None:
    """The file's content; None when there is none. Raises GridError."""
    with mapped(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def write(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Put `content` in the file's place; a file that exists keeps its group, and its mode unless it is to be secret. Raises GridError."""
    temporary = path.with_name(f".{path.name}.vcdl{os.getpid()}")
    with mapped(path, "written"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, SECRET_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                _take_after(path, file.fileno(), mode)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):  # it is in its place, or never was there
                temporary.unlink()


def _take_after(path: Path, descriptor: int, mode: int) -> None:
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, mode)
        return
    if old.st_gid != os.fstat(descriptor).st_gid:
        os.fchown(descriptor, -1, old.st_gid)
    os.fchmod(descriptor, mode if mode == SECRET_MODE else old.st_mode & 0o7777)


def delete(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there. Raises GridError."""
    with mapped(path, "removed"), contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def digest(content: bytes | None) -> str:
    """SHA-256 in hex; empty for a file that is not there."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


@contextmanager
def mapped(path: Path, done: str) -> Iterator[None]:
    """An OSError of the block as a GridError."""
    try:
        yield
    except OSError as error:
        raise GridError(
            f"{path} cannot be {done}: {error.strerror}; run this as the project's user, with room on the disk"
        ) from error
