"""Measure the bytes that a job takes on the server's disks, and compare them with its quota.

VCDL_JOB_QUOTA_GB, a line of PROJECT/vcdl/environment, sets the quota. A job above it gets no new work, and a new job
that would exceed it cannot be submitted.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from vcdl.boinc.grid.environment import read_environment
from vcdl.boinc.grid.manifest import Manifests
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import workunit_and_result
from vcdl.errors import GridError, WorkunitError, for_shell
from vcdl.wire.workunit import WorkunitName

QUOTA_VARIABLE = "VCDL_JOB_QUOTA_GB"
_PARTS = {"data": "data", "store": "weights", "snapshots": "weights", "downloads": "weights", "kept": "kept"}
"""The kind of bytes in a run's folder, by subfolder; other files but the journal are `other`."""


@dataclass(frozen=True)
class JobBytes:
    """The bytes that one job takes on the server, by kind; a file with two names counts once."""

    data: int = 0
    """Shards and validation data."""
    weights: int = 0
    """The store, if it is a folder; snapshots, and the files that clients get of them."""
    journal: int = 0
    kept: int = 0
    """Uploads that were applied."""
    waiting: int = 0
    """Uploads in upload/ that wait to be applied."""
    staged: int = 0
    """Copies in download/ that the run's folder does not share: other file systems, and compressed files."""
    other: int = 0

    @classmethod
    def of(cls, project: BoincProject, job: str) -> Self:
        """Measure a job by walking through its folders; a file that disappears meanwhile is not counted.

        Raises:
            GridError: A folder cannot be read.
        """
        found = dict.fromkeys((field.name for field in fields(cls)), 0)
        folder = project.run_folder(job).path
        for path, size_bytes in _files(folder):
            first = path.relative_to(folder).parts[0]
            found["journal" if first.startswith("journal.") else _PARTS.get(first, "other")] += size_bytes
        # All jobs and apps share upload/: a file's name tells whose it is, and names of other apps do not parse.
        for path, size_bytes in _files(project.upload_dir):
            with suppress(WorkunitError):
                found["waiting"] += size_bytes * (WorkunitName.parse(workunit_and_result(path)[0]).job == job)
        manifest = Manifests(project).read(job)
        for name in manifest.names if manifest else ():
            path = project.download_path(name)
            for each in (path, path.with_name(f"{name}.gz")):
                with suppress(FileNotFoundError):
                    status = each.stat()
                    # Count only files with one link: others share their blocks with the run's folder, where they were
                    # counted.
                    found["staged"] += status.st_size * (status.st_nlink == 1)
        return cls(**found)

    @property
    def total(self) -> int:
        return sum(vars(self).values())


def quota_bytes(project: BoincProject) -> int | None:
    """Return the quota of each job; None if the project has none.

    Raises:
        GridError: The quota cannot be read, or is not a number.
    """
    text = read_environment(project.path).get(QUOTA_VARIABLE, "")
    try:
        return int(float(text) * 1e9) if text else None
    except ValueError:
        raise GridError(f"{QUOTA_VARIABLE}={text} in vcdl/environment: give a number of gigabytes") from None


def over_quota(project: BoincProject, job: str) -> str:
    """Return a message if a job takes more than its quota, else "".

    Raises:
        GridError: The quota or the job's files cannot be read.
    """
    quota = quota_bytes(project)
    if quota is None or (held := JobBytes.of(project, job).total) <= quota:
        return ""
    return (
        f"{job} holds {held / 1e9:.2f} GB, and its quota is {quota / 1e9:g} ({QUOTA_VARIABLE} in vcdl/environment): no "
        f"new work of it is made until it holds less; "
        f"`vcdl project disk --project-dir {for_shell(project.path)}` shows what takes the space"
    )


def check_room(project: BoincProject, job: str, cut: float) -> None:
    """Refuse a job that is above its quota, or would be once all of its data are in shards.

    Args:
        project: The BOINC project.
        job: The job's name.
        cut: The fraction of the job's data that is already in shards.

    Raises:
        GridError: The job is, or would be, above the quota.
    """
    quota = quota_bytes(project)
    if quota is None or (held := JobBytes.of(project, job)).total <= quota:
        return
    # Extrapolate from the part that is cut, so that the message says what the whole job would need.
    data = held.data / cut
    needed = data + held.total - held.data
    raise GridError(
        f"{job} needs at least {needed / 1e9:.3g} GB of the server's disks ({data / 1e9:.3g} for its data), and a job "
        f"may hold {quota / 1e9:g} ({QUOTA_VARIABLE} in vcdl/environment): raise that, or take fewer or smaller samples"
    )


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for top, _, names in os.walk(folder):
        for name in names:
            # Ignore a file that disappears during the walk. Use lstat, so that the target of a link counts only where
            # it is.
            with suppress(FileNotFoundError):
                yield Path(top) / name, (Path(top) / name).lstat().st_size
