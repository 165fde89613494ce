"""Fetch the files of a task to a pilot's machine, in steps of a few seconds: a pilot must send heartbeats meanwhile.

Files that later tasks need, too, are kept on the machine. An interrupted copy is continued by the next step.
"""

import hashlib
import os
from pathlib import Path
from typing import Protocol

from vcdl.errors import WorkunitError
from vcdl.pool.messages import Assignment, Driver
from vcdl.pool.run_files import FETCHED
from vcdl.wire.newest import NEWEST_FILE, VERSION_FILE
from vcdl.wire.workunit import DESCRIPTION_FILE, FROZEN_FILE, INPUT_FILES, PARAMS_FILE, Workunit

_FILES = frozenset({*INPUT_FILES, FROZEN_FILE}) - {DESCRIPTION_FILE}
"""The files of a subtask without its description, by their names in its slot."""


class FileSource(Protocol):
    """A pilot's access to the files of a run. All calls raise OSError."""

    def read_driver(self) -> Driver | None: ...
    def file_identity(self, path: str) -> str: ...
    def copy(self, path: str, part: Path) -> bool: ...


class TaskFiles:
    """The files of one task that are still to be fetched. Call `fetch` until it returns True."""

    def __init__(self, task: Assignment, source: FileSource, slot: Path, kept: Path) -> None:
        """Prepare to fetch; nothing is fetched yet.

        Args:
            task: The task.
            source: The run's files.
            slot: The folder in which the client expects the files; created if it does not exist.
            kept: The folder with this machine's copies of files that several tasks need.
        """
        self._task = task
        self._source = source
        self._slot = slot
        self._kept = kept
        self._lacks = dict(task.files)
        """Name → path, as in `Assignment.files`, of the files that are still to be fetched."""
        self._newest: Driver | None = None
        """The announcement whose newest weights the task will start from, or None before the files are complete."""
        self.bytes_down = 0
        """Bytes that were copied so far, without the newest weights."""

    @property
    def refusal(self) -> str:
        """Why these files must not be fetched, or "": only files of a subtask may be named.

        Otherwise whoever can write to the mailbox could have any file of this user replaced.
        """
        for name, path in self._task.files.items():
            if name not in _FILES or not FETCHED.fullmatch(path):
                return f"the task names a file that no subtask has: {name[:80]!a} from {path[:80]!a}"
        return ""

    def fetch(self) -> bool:
        """Fetch missing files for some seconds, and return whether all are complete; if not, call again.

        Raises:
            OSError: The source is unavailable, or this machine's disk; call again later.
        """
        self._slot.mkdir(exist_ok=True)
        while self._lacks:
            name, path = next(iter(self._lacks.items()))
            if not self._fetch_file(path, self._slot / name):
                return False
            # Remove the files one by one, so that the next call continues with the one that was interrupted.
            del self._lacks[name]
        (self._slot / DESCRIPTION_FILE).write_text(self._task.description)
        return self._fetch_newest()

    def _fetch_file(self, path: str, target: Path) -> bool:
        """Put a file of the run at `target`, from this machine's cache if it is there; else copy it for some seconds.

        Returns:
            Whether the file is complete; if not, call again.
        """
        # Cache a file by path, size and modification time, which change with its content: so model and shards are
        # fetched once for all tasks.
        kept = self._kept / hashlib.sha256(self._source.file_identity(path).encode()).hexdigest()
        if not kept.exists():
            if not self._copy(path, kept.with_suffix(".part")):
                return False
            kept.with_suffix(".part").replace(kept)
        if target.name == PARAMS_FILE:
            kept.replace(target)  # do not cache weights: the next task almost always has newer ones
        else:
            os.link(kept, target)
        return True

    def _copy(self, path: str, part: Path) -> bool:
        """Copy a file for some seconds, continuing an interrupted copy, and remove the partial copies of other files.

        Args:
            path: The file, relative to the run's folder.
            part: The partial copy.

        Returns:
            Whether the copy is complete.
        """
        part.parent.mkdir(exist_ok=True)
        if not part.exists():
            for other in part.parent.glob("*.part"):
                other.unlink()
            part.touch()
        before_bytes = part.stat().st_size
        try:
            return self._source.copy(path, part)
        finally:
            self.bytes_down += part.stat().st_size - before_bytes

    def _fetch_newest(self) -> bool:
        """Copy the newest weights into the slot if they are newer than the task's, so that the worker starts from them.

        Returns:
            False if the copy is not complete yet: call again. True if it is, or if it is not needed.
        """
        # Copy the weights of one announcement to the end, although the run may publish newer ones meanwhile.
        driver = self._newest = self._newest or self._source.read_driver()
        if driver is None or not FETCHED.fullmatch(driver.newest_params):
            return True
        try:
            base_version = Workunit.from_json(self._task.description).base_version
        except WorkunitError:  # the worker refuses it with a reason
            return True
        if driver.newest_version <= base_version:
            return True
        part = self._slot / "newest.part"
        try:
            if not self._source.copy(driver.newest_params, part):
                return False
        except FileNotFoundError:  # newer weights replaced it: start from the task's own weights
            return True
        part.replace(self._slot / NEWEST_FILE)
        # Write the version last: its file means that the one with the weights is complete.
        (self._slot / VERSION_FILE).write_text(str(driver.newest_version))
        return True
