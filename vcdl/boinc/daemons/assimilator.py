"""`vcdl_assimilator`: apply the uploads of a project's jobs to their weights.

Any number of these daemons may run, because each claims rows of BOINC's database in a transaction of its own. In one
transaction, a daemon claims rows, applies their uploads to the store, writes the journal, and marks the rows as done.
After a kill in between, the rows are claimed again, and store and journal recognise the updates that they already have
(docs/decisions/001 and 004).
"""

import logging
import sys
from collections.abc import Collection

from vcdl.boinc.daemons.daemon import run_daemon
from vcdl.boinc.daemons.open_jobs import OpenJobs, open_runs
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import BoincResults, conclude_orphans
from vcdl.errors import ExitCode, StoreLost, VcdlError, folder_errors
from vcdl.journal.events import Recorded, UpdateApplied, UpdateRefused, UpdateSuperseded, WorkunitFailed
from vcdl.journal.kept_state import kept_history
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.run.staging import Uploaded

_IDLE_S = 0.5
"""Seconds of sleep after a round without work: the longest that an upload waits. Idle rounds cost next to nothing."""
_AT_MOST = 8
"""Rows per claim. They are applied between one read and one write of the shared weights, so a larger number delays
others."""
_log = logging.getLogger("vcdl.loop.assimilator")


class Assimilation:
    """The parameter server of one job: claims the job's uploads and applies them to its weights.

    A claim, the application and the journal's rows are one turn. If it fails, its rows are free again; if an upload is
    at fault, it is quarantined: it counts as failed, so that it does not block the queue.
    """

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        """Open the job's run and store, and record what a killed server has applied.

        Raises:
            VcdlError: The run or its store cannot be opened.
        """
        run = Run.open(folder)
        self._name, self._folder = run.name, folder
        self._journal = run.journal()
        self._results = BoincResults(project, database, folder, _AT_MOST)
        self._server = ParameterServer.of(run, self._journal, self._results)
        # Record the missing rows before the first claim: a server that was killed between store and journal left them,
        # and they must come before those of new uploads.
        self._server.catch_up()
        self._history = kept_history(self._journal)
        self._history.advance()  # past events are not logged again

    def run_once(self) -> bool:
        """Claim and apply some of the waiting uploads, and return whether there was anything to do.

        Raises:
            VcdlError: The job cannot continue now.
        """
        self._history.advance(_log_event)
        if self._history.state.stop is not None:
            return False  # results that still arrive are not applied; they are concluded as orphans
        try:
            return self._fold()
        # The store lost weights: Redis or MariaDB answered, but with older ones or none. Rebuild them from snapshots
        # and kept uploads. A store that does not answer is Unavailable instead, and OpenJobs retries.
        except StoreLost as lost:
            _log.warning("%s: %s", self._name, lost)
            _log.warning("%s: restored; %d updates were folded in again", self._name, self._server.restore())
            return True
        # The cause is the machine, the store or the job, not one upload, so nothing is quarantined.
        except (VcdlError, MemoryError):
            raise
        except Exception:
            # The turn was rolled back, so the same rows are free again and can be claimed one by one.
            _log.exception(
                "%s: a result that waits cannot be applied; the results are now tried one by one", self._name
            )
            return self._one_by_one()

    def close(self) -> None:
        self._journal.close()
        self._server.close()

    def _fold(self) -> bool:
        # Turn an OSError into RunFolderError: it is a fault of this machine, for which no result may be quarantined.
        with folder_errors(self._folder.path), self._results.turn():
            worked = self._server.run_once() > 0
            self._journal.append(
                *(UpdateSuperseded(workunit, size, host) for workunit, host, size in self._results.second_copies())
            )
            return worked

    def _one_by_one(self) -> bool:
        """Process rows one at a time, so that one that fails is quarantined and does not block the queue."""
        self._results.at_most = 1
        try:
            # Process no more than one normal claim, because the other jobs wait for their turn.
            for _ in range(_AT_MOST):
                if not self._fold_one():
                    break
        finally:
            self._results.at_most = _AT_MOST
        return True

    def _fold_one(self) -> bool:
        try:
            return self._fold()
        except (VcdlError, MemoryError):
            raise
        except Exception as error:
            if not self._results.claimed:  # no row is at fault
                raise
            self._quarantine(self._results.claimed, error)
            return True

    def _quarantine(self, failed: Collection[str], error: Exception) -> None:
        """Conclude the rows that failed, and record each in the journal as failed, so that its subtask is retried.

        Only these rows are claimed again; those that another server has claimed meanwhile are left to it.
        """
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        # Use a new turn: the one in which the row failed was rolled back, and its locks are gone.
        with self._results.turn():
            for outcome in self._results.claim_again(failed):
                size = outcome.size_bytes if isinstance(outcome, Uploaded) else 0
                _log.error("%s is quarantined: %s", outcome.workunit, reason)
                self._journal.append(
                    WorkunitFailed(outcome.workunit, f"quarantined by the assimilator ({size} bytes): {reason}")
                )
                self._results.done(outcome.workunit)


def _log_event(recorded: Recorded) -> None:
    match event := recorded.event:
        case UpdateApplied():
            _log.debug("%s: version %d, staleness %d", event.workunit, event.version, event.staleness)
        case UpdateRefused():
            _log.info("%s: refused, %s: %s", event.workunit, event.refusal, event.detail)
        case WorkunitFailed():
            _log.info("%s: %s", event.workunit, event.reason)
        case _:
            pass


class AssimilatorDaemon:
    """The daemon: each round processes every open job, then concludes results without an open job."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project
        self._database = BoincDatabase(project)
        self._jobs = OpenJobs(project, lambda folder: Assimilation(project, self._database, folder))
        # Start with True, so that a daemon that starts while the disk is missing logs a warning.
        self._saw_runs = True

    def run_once(self) -> bool:
        """Process the open jobs once, then the results that belong to no open job.

        Raises:
            GridError: The project cannot be read.
        """
        # Serve jobs first, so that results that they are about to conclude are not mistaken for orphans.
        worked = self._jobs.run_once()
        return self._conclude_orphans() > 0 or worked

    def _conclude_orphans(self) -> int:
        """Mark results without an open job as done, so that BOINC deletes their files; return their number.

        Concludes none while no job can be seen: an unmounted disk would make orphans of all results.
        """
        sees_runs = self._project.has_runs
        if self._saw_runs and not sees_runs:
            _log.warning(
                "there are no jobs in %s: none was submitted yet, or its disk is not mounted; "
                "results are left as they are",
                self._project.runs_folder,
            )
        self._saw_runs = sees_runs
        if not sees_runs:
            return 0
        return conclude_orphans(
            self._project, self._database, [folder.path.name for folder in open_runs(self._project)]
        )

    def close(self) -> None:
        self._jobs.close()
        self._database.close()


def main() -> ExitCode:
    """Run the daemon until it is stopped."""
    return run_daemon("vcdl_assimilator", __doc__.partition("\n")[0], AssimilatorDaemon, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
