"""Watch the free space of a project's disks, and stop work generation before a disk is full.

The database, the journals and the uploads of unfinished tasks need the remaining space.

PROJECT/vcdl/no_new_work   exists during such a shortage, so that other processes see it
"""

import logging
import math
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from vcdl.boinc.grid.job_bytes import over_quota
from vcdl.boinc.grid.project_folder import BoincProject

_GIB = 1 << 30
STOP_BYTES = 2 * _GIB
"""Free bytes below which no work is created: more than the 1 GiB below which BOINC's upload handler accepts nothing, so
that running tasks can still upload."""
GO_ON_BYTES = 3 * _GIB
"""Free bytes on each disk at which work generation resumes: more than STOP_BYTES, so that it does not flap."""
_DATABASE = Path("/var/lib/mysql")
_QUOTA_EVERY_S = 60.0
"""Seconds between two measurements of a job's size, because each walks through its folders."""
_log = logging.getLogger("vcdl.loop.work_generator")


def free_by_folder(project: BoincProject) -> dict[Path, int]:
    """Return the free bytes of each disk that the project fills, keyed by a folder on it.

    The database's disk is included if it is on this machine.
    """
    found: dict[int, tuple[Path, int]] = {}
    local = [_DATABASE] if project.db_host == "localhost" else []
    for folder in (
        project.download_dir,
        project.upload_dir,
        project.path,
        project.log_dir,
        project.runs_folder,
        *local,
    ):
        if os.path.isdir(folder):
            found.setdefault(folder.stat().st_dev, (folder, shutil.disk_usage(folder).free))
    return dict(found.values())


def shortage_mark(project: BoincProject) -> Path:
    """Return the file that exists during a shortage."""
    return project.path / "vcdl" / "no_new_work"


def least_bytes(project: BoincProject) -> int:
    """Return the free bytes that each disk needs for new work; more during a shortage than before it."""
    # Use two thresholds (hysteresis): with one, work generation would switch on and off with each workunit near the
    # limit.
    return GO_ON_BYTES if os.path.exists(shortage_mark(project)) else STOP_BYTES


class DiskRoom:
    """Checks whether a job may get new work: enough free space on the disks, and the job within its quota.

    Changes are logged. A shortage on a disk creates a mark that other processes see (`shortage_mark`).
    """

    def __init__(self, project: BoincProject, job: str) -> None:
        self._project = project
        self._job = job
        self._is_short = False
        self._over_quota = ""
        self._look_at_s = -math.inf

    def is_short(self) -> bool:
        """Return whether no new work of the job may be created now.

        Raises:
            GridError: The size of the job or the free space cannot be read.
        """
        return self._is_disk_short() or self._is_job_large()

    def _is_job_large(self) -> bool:
        if (now_s := time.monotonic()) >= self._look_at_s:  # it is read from the disk, file by file
            # Log only changes, because this is called in each round of the loop.
            before, self._over_quota = self._over_quota, over_quota(self._project, self._job)
            self._look_at_s = now_s + _QUOTA_EVERY_S
            if self._over_quota and not before:
                _log.error("%s", self._over_quota)
            elif before and not self._over_quota:
                _log.info("%s is within its quota again: new work of it is made", self._job)
        return bool(self._over_quota)

    def _is_disk_short(self) -> bool:
        free, folder = min((free, folder) for folder, free in free_by_folder(self._project).items())
        was_short, self._is_short = self._is_short, free < least_bytes(self._project)
        mark = shortage_mark(self._project)
        with suppress(OSError):  # a disk without a byte, or one that cannot be written
            if not self._is_short:
                mark.unlink(missing_ok=True)
            # Writing the mark may fail on a full disk. Then only `vcdl status` and the doctor miss the shortage,
            # because this process has it in `_is_short`.
            elif not mark.exists():
                mark.touch()
        if self._is_short and not was_short:
            _log.error("%s", shortage(folder, free))
        elif was_short and not self._is_short:
            _log.info("there is room on the disk of %s again: new work is made", folder)
        return self._is_short


def shortage(folder: Path, free_bytes: int) -> str:
    """Return the message about a disk with too little free space."""
    return (
        f"{free_bytes / _GIB:.1f} GiB are free for {folder}: no new work is made until {GO_ON_BYTES / _GIB:g} are. "
        "Remove old jobs in vcdl/runs, logs and backups"
    )
