"""Run a daemon's rounds over the open jobs of a project.

Each job has a part: an object that does the daemon's work for that job. An error in one part is logged and retried with
back-off, and does not hold up the other jobs.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from vcdl.boinc.daemons.daemon import Rounds
from vcdl.boinc.grid.project_folder import RESULTS_WAIT, BoincProject, Identity, add_advice, identity_of
from vcdl.client.resources import is_out_of_memory
from vcdl.errors import GridUnavailable, Unavailable, VcdlError
from vcdl.errors.backoff import Attempts
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished

_AFTER_A_BUG_S = 30.0
"""Seconds before a part that failed with an unexpected error is created again, so that a bug does not fill the log."""
_log = logging.getLogger("vcdl.jobs")


def open_runs(project: BoincProject) -> list[RunFolder]:
    """Return the folders of submitted jobs without results, sorted by name.

    Raises:
        GridError: The folder of the jobs cannot be read.
    """
    with add_advice(project.runs_folder, RESULTS_WAIT):
        if not project.runs_folder.is_dir():
            return []
        folders = (RunFolder(path) for path in sorted(project.runs_folder.iterdir()))
        return [folder for folder in folders if folder.prepared_file.exists() and not is_finished(folder)]


@dataclass
class _Job:
    part: Rounds | None = None
    attempts: Attempts = field(default_factory=Attempts)
    stamp: Identity | None = None
    """Identity of the job's file when the part was created; it is created again when `vcdl set` replaces the file."""


def _stamp(folder: RunFolder) -> Identity | None:
    """Return the identity of a job's file; None if it is unreadable (opening the job then reports why)."""
    with suppress(OSError):
        return identity_of(folder.job_file)
    return None


class OpenJobs:
    """Runs a daemon's rounds over the open jobs.

    A part is created for each new job, kept over the rounds, and closed when its job has ended.
    """

    def __init__(
        self,
        project: BoincProject,
        put_together: Callable[[RunFolder], Rounds],
        runs: Callable[[BoincProject], list[RunFolder]] = open_runs,
    ) -> None:
        """Prepare the rounds.

        Args:
            project: The BOINC project.
            put_together: Creates the part of one job.
            runs: Returns the folders to serve; by default those of the open jobs.
        """
        self._project = project
        self._runs = runs
        self._put_together = put_together
        self._jobs: dict[RunFolder, _Job] = {}

    def run_once(self) -> bool:
        """Serve each job once, and return whether any had work.

        Raises:
            GridUnavailable: No job can continue.
        """
        folders = self._runs(self._project)
        for ended in self._jobs.keys() - set(folders):
            # Close ended jobs first, because they hold a journal, a connection to their store and the run's lock.
            self._drop(self._jobs.pop(ended))
        worked = [self._serve(folder) for folder in folders]  # a list, as `any` would stop at the first that worked
        return any(worked)

    def close(self) -> None:
        for job in self._jobs.values():
            self._drop(job)
        self._jobs.clear()

    def _serve(self, folder: RunFolder) -> bool:
        job = self._jobs.setdefault(folder, _Job())
        # Each job has its own back-off, so that one with a broken folder does not slow down the others' rounds.
        if not job.attempts.is_due:
            return False
        try:
            stamp = _stamp(folder)
            if stamp != job.stamp:  # `vcdl set` has changed the job
                self._drop(job)
                job.stamp = stamp
            if job.part is None:
                job.part = self._put_together(folder)
            worked = job.part.run_once()
        # Give up the round: all jobs use BOINC's database, so the next one would only wait for the same time-out.
        except GridUnavailable:
            raise
        except VcdlError as error:
            # After Unavailable nothing is half done, so keep the part and retry. After any other error its state is
            # unknown, so create it again from the disk.
            if not isinstance(error, Unavailable):
                self._drop(job)
            _log.error("%s: %s", folder.path.name, job.attempts.record_failure(error))
        except Exception as error:
            # Keras reports a lack of memory by several exceptions, whose traceback would look like a bug. Dropping the
            # part frees memory.
            if is_out_of_memory(error):
                _log.error("%s: out of memory (%s); the job is opened again", folder.path.name, type(error).__name__)
            else:
                _log.exception("%s: a bug in vcdl; the job is opened again", folder.path.name)
            self._drop(job)
            _log.error(
                "%s: %s", folder.path.name, job.attempts.record_failure("this daemon pauses the job", _AFTER_A_BUG_S)
            )
        else:
            job.attempts.record_success()
            return worked
        return False

    def _drop(self, job: _Job) -> None:
        if job.part is not None:
            job.part.close()
            job.part = None
