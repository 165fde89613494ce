"""Write the figures of the volunteers' job page, which the work generator does at regular intervals."""

import json
import logging
import time

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project import files
from vcdl.boinc.project.pages import JOBS_FILE, JOBS_PAGE
from vcdl.boinc.runtime.published import sizes
from vcdl.errors import VcdlError
from vcdl.run.finding import all_runs
from vcdl.run.standing import JobRow, job_rows
from vcdl.trust.kept_hosts import bringing

_EVERY_S = 30.0
"""Seconds between two writes of the page's data, because visitors need not see it sooner."""
_log = logging.getLogger("vcdl.loop.work_generator")


class JobsPage:
    """Writes the data file of the volunteers' job page."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project
        self._due_s = 0.0
        self._written = b""

    def write_when_due(self) -> None:
        """Write the figures if the page is installed and they have changed; a failure is only logged."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _EVERY_S
        # Write nothing without the page: an operator who does not want the figures removes it.
        if not (self._project.path / JOBS_PAGE).is_file():
            return
        try:
            content = json.dumps(
                {
                    "jobs": [_fields(row) for row in job_rows(all_runs(self._project.path), bringing)],
                    "runtimes": [
                        {"system": size.system, "down_mb": _mb(size.fetched_bytes), "disk_mb": _mb(size.disk_bytes)}
                        for size in sizes(self._project.path)
                    ],
                }
            ).encode()
            # Write only changes, because most rounds have none and a durable write is expensive.
            if content != self._written:
                files.write(self._project.path / JOBS_FILE, content)
                self._written = content
        except VcdlError as error:
            _log.warning("the job page shows old figures, as new ones cannot be written: %s", error)


def _fields(row: JobRow) -> dict[str, object]:
    return {
        "job": row.job,
        "trains": row.trains,
        "state": row.state.value,
        "epoch": row.epoch,
        "epochs": row.epochs,
        "measured": f"{row.monitor} {row.value}",
        "hosts": row.hosts,
        "down_mb": _mb(row.bytes_down),
        "up_mb": _mb(row.bytes_up),
    }


def _mb(size_bytes: float) -> float:
    return round(size_bytes / 1e6, 2)
