"""The slots of the local grid: for each subtask in training a folder with its logical files."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write, temporary_name
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded
from vcdl.wire.workunit import OUTPUT_FILE


@dataclass(frozen=True)
class SlotFolders:
    """The folders `slots/<workunit>/` of a run, each with the input files and later the checkpoint of a workunit."""

    folder: RunFolder

    def path(self, workunit: str) -> Path:
        return self.folder.slots / workunit

    def prepare(self, staged: Staged) -> Path:
        """Create the slot of a workunit with its input files, and return its path; an existing checkpoint stays.

        Raises:
            RunFolderError: A file cannot be written. The call may be repeated.
        """
        slot = self.path(staged.workunit.name)
        with folder_errors(slot):
            self.folder.slots.mkdir(exist_ok=True)  # it may have been deleted; everything in it can be recreated
            slot.mkdir(exist_ok=True)
            for name, source in staged.inputs.items():
                _link(source, slot / name)
            for name, text in staged.texts.items():
                (slot / name).write_text(text)
        return slot

    def check_room(self, staged: Staged) -> None:
        """Check that the disk has room for the update of a workunit, by allocating a temporary file of its size.

        Raises:
            RunFolderFull: It does not.
            RunFolderError: The slots' folder cannot be written for another reason.
        """
        probe = temporary_name(self.folder.slots / "room")
        try:
            with folder_errors(self.folder.slots), probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, staged.params.stat().st_size)
        finally:
            probe.unlink(missing_ok=True)

    def take_over(self, workunit: str, worker: str) -> Uploaded:
        """Move the update in a slot to the run's uploads, and return it with its size, worker and time of arrival.

        Args:
            workunit: The name of the workunit.
            worker: The name of the worker that trained it.

        Raises:
            OSError: It is missing or cannot be moved.
        """
        update, upload = self.path(workunit) / OUTPUT_FILE, self.folder.uploads / f"{workunit}.h5"
        size_bytes = update.stat().st_size
        self.folder.uploads.mkdir(exist_ok=True)  # it may have been deleted, like that of the slots
        update.replace(upload)
        return Uploaded(workunit, upload, size_bytes, worker, time.time())

    def remove(self, workunit: str) -> None:
        shutil.rmtree(self.path(workunit), ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """Make a hard link to a file in a slot, or a copy where links are impossible; do nothing if it exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        with atomic_write(target) as copy:
            shutil.copyfile(source, copy)
