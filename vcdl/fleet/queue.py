"""The capacity that a project's open jobs can use, between `min` and `max`, from its unsent workunits.

The work generator keeps a few more workunits unsent than clients fetch. So a fleet that follows them grows from pass to
pass until the jobs cannot be split further or `max` is reached, and shrinks once a job's last subtasks are sent.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcdl.fleet.settings import CapacitySettings

if TYPE_CHECKING:
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.run.folder import RunFolder


@dataclass(frozen=True)
class Queue:
    """The work of a project's open jobs; a job that is paused, or only waits for its last evaluation, is not open."""

    jobs: int
    unsent: int
    """Workunits that no client has fetched."""
    running: int
    """Workunits that are sent, or returned and not yet assimilated."""
    remaining: int
    """Subtasks until all the jobs are done, unless something ends them earlier."""
    task_s: float | None
    """Recent time from sending a subtask to its report; None: none was reported yet."""


def wanted_units(queue: Queue, capacity: CapacitySettings, now_s: float) -> int:
    """Units that the queue can use now: 0 when no job is open, else from `min` to `max`.

    With a deadline, what finishes in time: remaining · task_s / max(time left, task_s) subtasks at once.
    """
    if queue.jobs == 0:
        return 0
    at_once = float(queue.unsent + queue.running)
    if capacity.deadline is not None and queue.task_s is not None:
        left_s = capacity.deadline.timestamp() - now_s
        at_once = queue.remaining * queue.task_s / max(left_s, queue.task_s, 1.0)
    return max(capacity.min, min(capacity.limit, math.ceil(at_once * capacity.units_per_subtask)))


class ProjectQueue:
    """The queue of the BOINC project in a folder of this machine. All calls may raise GridError or GridUnavailable."""

    def __init__(self, folder: Path) -> None:
        """Reads nothing yet."""
        self._folder = folder
        self._opened: tuple[BoincProject, BoincDatabase] | None = None

    def read(self) -> Queue:
        """The queue now. Raises GridError, also for a missing package or project, and JournalError."""
        from vcdl.boinc.daemons.open_jobs import open_runs
        from vcdl.boinc.grid.client_rows import ClientRows
        from vcdl.boinc.grid.workunit_rows import WorkunitRows

        project, database = self._open()
        open_jobs = {folder: left for folder in open_runs(project) if (left := _remaining(folder))}
        stocks = [WorkunitRows(database, folder.path.name).stock() for folder in open_jobs]
        return Queue(
            jobs=len(open_jobs),
            unsent=sum(stock.unsent for stock in stocks),
            running=sum(stock.running for stock in stocks),
            remaining=sum(open_jobs.values()),
            task_s=ClientRows(database).demand().task_s,
        )

    def close(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def _open(self) -> "tuple[BoincProject, BoincDatabase]":
        if self._opened is None:
            from vcdl.boinc.grid.database import BoincDatabase
            from vcdl.boinc.grid.project_folder import BoincProject

            project = BoincProject.at(self._folder)
            self._opened = project, BoincDatabase(project)
        return self._opened


def _remaining(folder: "RunFolder") -> int:
    """Subtasks of a job that are still to be assimilated; 0 while it is paused, and once its end is decided."""
    from vcdl.job import load_frozen_job
    from vcdl.run.finding import read_report

    report = read_report(folder)
    if report.stop is not None or folder.stop_request.exists():
        return 0
    return max(0, load_frozen_job(folder.job_file).subtasks - report.totals.applied)
