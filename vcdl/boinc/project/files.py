"""Write files of a project atomically, keeping group and mode."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.boinc.runtime.archive import RuntimeFile
from vcdl.errors import GridError
from vcdl.files.atomic import PRIVATE_MODE, atomic_write, file_sha256, sweep
from vcdl.files.shipped import shipped_folder

DOCTORS_UPLOAD = "vcdl_doctor_"
"""Prefix of the files that `vcdl project doctor` uploads."""
FILE_MODE = 0o644
"""The mode of installed files, because daemons and the web server read them."""
PROGRAM_MODE = 0o755
"""The mode of installed programs, so that BOINC's daemons may run them."""
SECRET_MODE = PRIVATE_MODE


def launchers() -> list[Path]:
    """Return the programs for a project's bin/, without the byte code that Python keeps next to imported ones."""
    return sorted(path for path in (shipped_folder("boinc_project") / "bin").iterdir() if path.is_file())


def read(path: Path) -> bytes | None:
    """Return the file's content; None if there is no file.

    Raises:
        GridError: The file cannot be read.
    """
    with map_os_errors(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def holds(path: Path, content: bytes | RuntimeFile) -> bool:
    """Return whether the file has this content.

    Raises:
        GridError: The file cannot be read.
    """
    if isinstance(content, bytes):
        return read(path) == content
    with map_os_errors(path, "read"):
        if not path.is_file() or path.stat().st_size != content.size:
            return False
        return file_sha256(path) == content.sha256


def write(path: Path, content: bytes | RuntimeFile, mode: int = FILE_MODE) -> None:
    """Write a file atomically, keeping its group and its mode; missing folders are created.

    Args:
        path: The file.
        content: Its new content.
        mode: The mode of a new file. SECRET_MODE also replaces the mode of an existing one.

    Raises:
        GridError: The file cannot be written.
    """
    with map_os_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        # Keep it private until `_take_after`: config.xml has a password, which a temporary file with the umask's mode
        # would show.
        with atomic_write(path, durable=True, private=True) as temporary:
            if isinstance(content, bytes):
                temporary.write_bytes(content)
            else:
                shutil.copyfile(content.path, temporary)
            _take_after(path, temporary, mode)


def _take_after(path: Path, temporary: Path, mode: int) -> None:
    try:
        old = path.stat()
    except FileNotFoundError:
        temporary.chmod(mode)
        return
    # Keep the group, through which the web server's user reads these files.
    if old.st_gid != temporary.stat().st_gid:
        os.chown(temporary, -1, old.st_gid)
    # Keep a mode that the operator set, except for a secret: install closes one that was opened to others.
    temporary.chmod(mode if mode == SECRET_MODE else old.st_mode & 0o7777)


def delete(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists.

    Raises:
        GridError: It cannot be removed.
    """
    with map_os_errors(path, "removed"), contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def digest(content: bytes | None) -> str:
    """Return the SHA-256 of a content in hex; an empty string for a missing file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


@contextmanager
def map_os_errors(path: Path, done: str) -> Iterator[None]:
    """Turn an OSError of the block into a GridError.

    Args:
        path: The file, for the message.
        done: What was to be done with the file: "read", "written" or "removed".
    """
    try:
        yield
    except OSError as error:
        raise GridError(
            f"{path} cannot be {done}: {error.strerror}; run this as the project's user, with room on the disk"
        ) from error
