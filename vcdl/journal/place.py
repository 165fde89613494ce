"""The file of a journal: whether it lies where it was opened, and how it is put back when somebody deleted it."""

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
"""Ends of SQLite's files beside the journal's; rows that went into such a file after the deletion are in the copy."""


@dataclass(frozen=True)
class Place:
    """A path, and the file that lay there when it was opened."""

    path: Path
    _file: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path) -> Self:
        """The place of the file that lies there now."""
        return cls(path, _file_at(path))

    def check(self, connection: sqlite3.Connection, *, may_write: bool) -> None:
        """Raise JournalError when another file or none lies there now.

        A deleted file is put back first, if this process `may_write`: `connection` has it open, as a whole.
        """
        found = _file_at(self.path)
        if found == self._file:
            return
        if found is None and may_write and _put_back(connection, self.path):
            raise JournalError(
                f"{self.path} was deleted while the run was under way. It is put back, with every event in it: "
                "`vcdl resume` goes on"
            )
        if found is None:
            raise gone(self.path)
        raise JournalError(
            f"{self.path} was deleted or replaced while the run was under way: see that what lies there now is the "
            "journal of this run, then `vcdl resume` goes on from it"
        )


def gone(path: Path) -> JournalError:
    """The error for a run whose journal is not there."""
    folder = path.parent
    return JournalError(
        f"{path} is gone, and nothing else knows what this run has done: put a copy of it back, and `vcdl resume` goes "
        f"on. Without one the weights are left: `vcdl export {for_shell(folder)} -o model.keras` writes the "
        "newest that are in "
        f"{folder / 'snapshots'}, and `vcdl run {for_shell(folder / 'job.yaml')} --out DIR` begins the job again"
    )


def _file_at(path: Path) -> tuple[int, int] | None:
    """The identity of the file; None when there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"{path} cannot be looked at ({error.strerror}): {file_cure(error)}") from error
    return found.st_dev, found.st_ino


def _put_back(connection: sqlite3.Connection, path: Path) -> bool:
    """Write the whole journal to its place again; False when that fails, or another process was faster."""
    copy = temporary_name(path)
    try:
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
        for suffix in _BESIDE:  # of the deleted file
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.link(copy, path)
    except (OSError, sqlite3.Error):
        return False
    finally:
        with contextlib.suppress(OSError):
            copy.unlink()
    return True
