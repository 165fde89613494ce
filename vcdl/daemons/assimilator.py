"""`vcdl_assimilator`: the parameter server of a BOINC project's jobs. Any number may run; they claim rows and are not numbered.

At least once from BOINC, exactly once into the store: a claim is a transaction on BOINC's database that ends with the row marked as
done. A server killed inside it leaves the row to the next one, and the store knows what it had folded.
"""

import logging
import sys
from collections.abc import Collection
from dataclasses import replace

from vcdl.daemons.daemon import run_daemon
from vcdl.daemons.open_jobs import OpenJobs, open_runs
from vcdl.errors import ExitCode, StoreLost, VcdlError, folder_error
from vcdl.events import Event, StopDecided, UpdateApplied, UpdateRefused, WorkunitFailed
from vcdl.grids.base import Uploaded
from vcdl.grids.boinc.database import BoincDatabase
from vcdl.grids.boinc.project_folder import BoincProject
from vcdl.grids.boinc.results import BoincResults, conclude_strays
from vcdl.job import load_frozen_job
from vcdl.journal import Journal
from vcdl.parameter_server import ServerParts
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared, store_settings
from vcdl.stores.open import import_client_library

_IDLE_S = 0.5
_AT_MOST = 8
"""Rows of one claim: they are folded between one read and one write of the shared weights."""
_log = logging.getLogger("vcdl.assimilator")


class Assimilation:
    """Serves the weights of one job."""

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        """Raises VcdlError."""
        job, prepared = load_frozen_job(folder.job_file), Prepared.read(folder)
        import_client_library(store_settings(job, folder))
        self._name = job.name
        self._project, self._database, self._folder = project, database, folder
        self._journal = Journal.at(folder.journal_file)
        self._results = BoincResults(project, database, folder, _AT_MOST)
        self._parts = ServerParts.of(folder, job, prepared, self._journal, self._results, job.validate_every)
        self._parts.catch_up(0)
        self._last_id = 0
        self._is_over = False

    def run_once(self) -> bool:
        """Fold what waits. Raises VcdlError."""
        self._follow()
        if self._is_over:
            return False  # what still comes is nobody's any more; it is concluded with the strays
        try:
            return self._fold(self._results)
        except StoreLost as lost:
            _log.warning("%s: %s", self._name, lost)
            _log.warning("%s: restored; %d updates were folded in again", self._name, self._parts.restore())
            return True
        except (VcdlError, MemoryError):
            raise
        except Exception:
            _log.exception(
                "%s: one of the results that wait cannot be assimilated; they are taken one by one", self._name
            )
            return self._one_by_one()

    def close(self) -> None:
        self._journal.close()
        self._parts.store.close()

    def _fold(self, results: BoincResults) -> bool:
        try:
            with results.turn():
                count = replace(self._parts.assimilator, results=results).run_once()
        except OSError as error:  # of this machine: no result is set aside for it
            raise folder_error(self._folder.path, error) from error
        return count > 0

    def _one_by_one(self) -> bool:
        """A row that fails alone is set aside with its reason, so that it never blocks the queue."""
        single = BoincResults(self._project, self._database, self._folder, 1)
        for _ in range(_AT_MOST):
            try:
                if not self._fold(single):
                    break
            except (VcdlError, MemoryError):
                raise
            except Exception as error:
                if not single.claimed:  # no row is at fault
                    raise
                self._set_aside(single, single.claimed, error)
        return True

    def _set_aside(self, single: BoincResults, failed: Collection[str], error: Exception) -> None:
        """Only what had failed: since it was rolled back, an older row may have become ready, or another server have this one."""
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        with single.turn():
            for outcome in single.claim_again(failed):
                size = outcome.size_bytes if isinstance(outcome, Uploaded) else 0
                _log.error("%s is set aside: %s", outcome.workunit, reason)
                self._journal.append(
                    WorkunitFailed(outcome.workunit, f"set aside by the assimilator ({size} bytes): {reason}")
                )
                single.done(outcome.workunit)

    def _follow(self) -> None:
        for recorded in self._journal.read(self._last_id):
            self._last_id = recorded.id
            self._tell(recorded.event)

    def _tell(self, event: Event) -> None:
        match event:
            case StopDecided():
                self._is_over = True
            case UpdateApplied():
                _log.debug("%s: version %d, staleness %d", event.workunit, event.version, event.staleness)
            case UpdateRefused():
                _log.info("%s: refused, %s: %s", event.workunit, event.refusal, event.detail)
            case WorkunitFailed():
                _log.info("%s: %s", event.workunit, event.reason)
            case _:
                pass


class Assimilator:
    """Goes round the open jobs."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project
        self._database = BoincDatabase(project)
        self._jobs = OpenJobs(project, lambda folder: Assimilation(project, self._database, folder))
        self._saw_runs = True

    def run_once(self) -> bool:
        """A round over the open jobs, then the results that belong to none. Raises GridError."""
        worked = self._jobs.run_once()
        return self._conclude_strays() > 0 or worked

    def _conclude_strays(self) -> int:
        """How many; none while no job can be seen: they would all be strays, and their uploads deleted."""
        sees_runs = self._project.has_runs
        if self._saw_runs and not sees_runs:
            _log.warning(
                "there are no jobs in %s: none was submitted yet, or its disk is not mounted; results are left as they are",
                self._project.runs_folder,
            )
        self._saw_runs = sees_runs
        if not sees_runs:
            return 0
        return conclude_strays(self._project, self._database, [folder.path.name for folder in open_runs(self._project)])

    def close(self) -> None:
        self._jobs.close()
        self._database.close()


def main() -> ExitCode:
    """Assimilate until told to end."""
    return run_daemon("vcdl_assimilator", __doc__.partition("\n")[0], Assimilator, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
