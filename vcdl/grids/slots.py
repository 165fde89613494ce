"""The slots of the local grid: for each subtask that is out a folder with just the logical files, where its client works."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import folder_error
from vcdl.grids.base import Staged, Uploaded
from vcdl.run.folder import RunFolder
from vcdl.whole_file import whole_file
from vcdl.workunit import INPUT_FILES, OUTPUT_FILE


@dataclass(frozen=True)
class Slots:
    """Of one run."""

    folder: RunFolder

    def path(self, workunit: str) -> Path:
        return self.folder.slots / workunit

    def prepare(self, staged: Staged) -> Path:
        """The slot of a workunit; one that is there may hold a checkpoint to go on from. Raises RunFolderError: call again."""
        slot = self.path(staged.workunit.name)
        description, *logical = (slot / name for name in INPUT_FILES)
        try:
            slot.mkdir(exist_ok=True)
            for target, source in zip(logical, (staged.model, staged.params, staged.shard), strict=True):
                if not target.exists():
                    _link(source, target)
            description.write_text(staged.workunit.to_json())
        except OSError as error:
            raise folder_error(slot, error) from error
        return slot

    def check_room(self, staged: Staged) -> None:
        """Find out whether an update of a workunit would fit on the disk now. Raises RunFolderFull when it would not, RunFolderError."""
        probe = self.folder.slots / f".room.{os.getpid()}.tmp"
        try:
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, staged.params.stat().st_size)
        except OSError as error:
            raise folder_error(self.folder.slots, error) from error
        finally:
            probe.unlink(missing_ok=True)

    def take_over(self, workunit: str) -> Uploaded:
        """Move the update to the uploads. Raises OSError."""
        update, upload = self.path(workunit) / OUTPUT_FILE, self.folder.uploads / f"{workunit}.h5"
        size_bytes = update.stat().st_size
        update.replace(upload)
        return Uploaded(workunit, upload, size_bytes)

    def remove(self, workunit: str) -> None:
        shutil.rmtree(self.path(workunit), ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        with whole_file(target) as copy:
            shutil.copyfile(source, copy)
