"""The open jobs of a project, each with a part of its own that a daemon works with: what ails one job holds up none of the others."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from vcdl.errors import GridUnavailable, Unavailable, VcdlError
from vcdl.grids.boinc.project_folder import BoincProject, not_readable
from vcdl.patience import Patience
from vcdl.run.finding import is_finished
from vcdl.run.folder import RunFolder

_AFTER_A_BUG_S = 30.0
"""A part that failed in a way nobody expected is put together anew, but not at once."""
_log = logging.getLogger("vcdl.jobs")


class Part(Protocol):
    """What a daemon does for one job."""

    def run_once(self) -> bool:
        """One round; whether there was anything to do."""
        ...

    def close(self) -> None: ...


def open_runs(project: BoincProject) -> list[RunFolder]:
    """The folders of the jobs that are submitted and have not left their results, oldest name first. Raises GridError."""
    try:
        if not project.runs_folder.is_dir():
            return []
        folders = (RunFolder(path) for path in sorted(project.runs_folder.iterdir()))
        return [folder for folder in folders if folder.prepared_file.exists() and not is_finished(folder)]
    except OSError as error:
        raise not_readable(project.runs_folder, error) from error


@dataclass
class _Job:
    part: Part | None = None
    patience: Patience = field(default_factory=Patience)
    not_before_s: float = 0.0


class OpenJobs:
    """Goes round the open jobs: puts a part together for each new one, closes it when its job is over."""

    def __init__(
        self,
        project: BoincProject,
        put_together: Callable[[RunFolder], Part],
        runs: Callable[[BoincProject], list[RunFolder]] = open_runs,
    ) -> None:
        """`runs`: the folders to go round, those of the open jobs or others."""
        self._project = project
        self._runs = runs
        self._put_together = put_together
        self._jobs: dict[RunFolder, _Job] = {}

    def run_once(self) -> bool:
        """A round over all of them; whether any had anything to do. Raises GridUnavailable: none of them can go on."""
        folders = self._runs(self._project)
        for ended in self._jobs.keys() - set(folders):
            self._drop(self._jobs.pop(ended))
        worked = [self._serve(folder) for folder in folders]  # each of them, also after one that worked
        return any(worked)

    def close(self) -> None:
        for job in self._jobs.values():
            self._drop(job)
        self._jobs.clear()

    def _serve(self, folder: RunFolder) -> bool:
        job = self._jobs.setdefault(folder, _Job())
        if time.monotonic() < job.not_before_s:
            return False
        try:
            if job.part is None:
                job.part = self._put_together(folder)
            worked = job.part.run_once()
        except GridUnavailable:
            raise
        except Unavailable as away:
            self._rest(folder, job, f"{away}", job.patience.next_wait_s())
        except VcdlError as error:
            self._drop(job)
            self._rest(folder, job, f"{error}", job.patience.next_wait_s())
        except Exception:
            _log.exception("%s: a mistake in vcdl; its part is put together anew", folder.path.name)
            self._drop(job)
            self._rest(folder, job, "it rests", _AFTER_A_BUG_S)
        else:
            job.patience.reset()
            return worked
        return False

    def _rest(self, folder: RunFolder, job: _Job, why: str, wait_s: float) -> None:
        _log.error("%s: %s; trying again in %g s", folder.path.name, why, wait_s)
        job.not_before_s = time.monotonic() + wait_s

    def _drop(self, job: _Job) -> None:
        if job.part is not None:
            job.part.close()
            job.part = None
