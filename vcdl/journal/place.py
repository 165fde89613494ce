"""Check that a journal's file is still the one that was opened, and restore it if it was deleted."""

import contextlib
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.errors import JournalError, file_cure, for_shell
from vcdl.files.atomic import temporary_name

_BESIDE = ("-wal", "-shm")
"""Suffixes of SQLite's companion files. They are removed with a deleted journal, as the restored copy includes their
rows."""


@dataclass(frozen=True)
class Place:
    """A path, and the identity of the file at this path when the journal was opened."""

    path: Path
    _file: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return a path with the identity of its present file."""
        return cls(path, _file_at(path))

    def check(self, connection: sqlite3.Connection, *, may_write: bool) -> None:
        """Check that the journal's file is still the one that was opened.

        Args:
            connection: The open database, which can still read a deleted file's whole content.
            may_write: Whether to write a deleted file again from the connection.

        Raises:
            JournalError: The file was deleted or replaced. The message says whether a deleted file was written
                again; in any case the run must be resumed.
        """
        # Device and inode instead of a file lock: SQLite keeps writing into a deleted file without an error, and its
        # rows would be lost with the last descriptor.
        found = _file_at(self.path)
        if found == self._file:
            return
        if found is None and may_write and _put_back(connection, self.path):
            raise JournalError(
                f"{self.path} was deleted while the run was in progress. It has been restored with all its events: "
                "`vcdl resume` continues"
            )
        if found is None:
            raise gone(self.path)
        raise JournalError(
            f"{self.path} was deleted or replaced while the run was in progress: check that the file there now is the "
            "journal of this run, then `vcdl resume` continues from it"
        )


def gone(path: Path) -> JournalError:
    """Return the error for a run whose journal is missing."""
    folder = path.parent
    return JournalError(
        f"{path} is missing, and nothing else records what this run has done: restore a copy of it, and `vcdl resume` "
        f"continues. Without a copy only the weights are left: `vcdl export {for_shell(folder)} -o model.keras` writes "
        f"the newest ones in {folder / 'snapshots'}, and `vcdl run {for_shell(folder / 'job.yaml')} --out DIR` "
        "restarts the job"
    )


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the identity (device and inode) of the file, or None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror}): {file_cure(error)}") from error
    return found.st_dev, found.st_ino


def _put_back(connection: sqlite3.Connection, path: Path) -> bool:
    """Write the whole journal to its path again; return False if that fails or another process created it first."""
    # Write under a temporary name first. The final name is a hard link, which fails if another process was faster.
    copy = temporary_name(path)
    try:
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
        for suffix in _BESIDE:  # these belong to the deleted file
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.link(copy, path)
    except (OSError, sqlite3.Error):
        return False
    finally:
        with contextlib.suppress(OSError):
            copy.unlink()
    return True
