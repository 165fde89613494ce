"""`vcdl_evaluator`: measure versions of the open jobs' weights, and write the results when a job ends.

It is a separate process because no other daemon needs Keras.
"""

import logging
import sys
from contextlib import closing

from vcdl.boinc.daemons.daemon import run_daemon
from vcdl.boinc.daemons.open_jobs import OpenJobs
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import ExitCode
from vcdl.journal.events import StopDecided
from vcdl.journal.observer import RunObserver
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.recovery import drop_weights
from vcdl.run.folder import RunFolder
from vcdl.run.results import leave_results
from vcdl.run.run import Run

_IDLE_S = 1.0
"""Seconds of sleep after a round without work. An evaluation takes longer anyway, so a shorter sleep gains nothing."""
_log = logging.getLogger("vcdl.loop.evaluator")


class Evaluation:
    """Evaluates the versions of one job's weights, and writes its results when the job has ended."""

    def __init__(self, folder: RunFolder) -> None:
        """Open the job's run.

        Raises:
            VcdlError: The run cannot be opened.
        """
        self._run = Run.open(folder)
        self._journal = self._run.journal()
        self._evaluator = Evaluator(self._run, self._journal)

    def run_once(self) -> bool:
        """Evaluate the versions that are due, and return whether there was anything to do.

        Raises:
            VcdlError: The job cannot be evaluated now.
        """
        count, run = self._evaluator.run_once(), self._run
        if count:
            _log.debug("%s: %d versions or uploads measured", run.name, count)
        # Write the results in this process, which has Keras, because they include model.keras.
        if self._evaluator.run_has_finished:
            report = leave_results(run.folder, run.name, RunObserver())
            if report.stop is not None:
                # Delete the weights after the results: summary.json, which is written last, ends the job. A daemon
                # that is killed before that starts over, and still finds the weights.
                self._drop_weights(report.stop)
            _log.info("%s: finished; its results are in %s", run.name, run.folder.path)
            return True
        return count > 0

    def close(self) -> None:
        self._journal.close()

    def _drop_weights(self, stopped: StopDecided) -> None:
        """Delete the job's weights from its store: the results are written, and no daemon needs them any more."""
        with closing(self._run.store()) as store:
            drop_weights(store, self._run.snapshots(store), stopped)


def evaluations(project: BoincProject) -> OpenJobs:
    """Return the work of the daemon: rounds over the open jobs."""
    return OpenJobs(project, Evaluation)


def main() -> ExitCode:
    """Run the daemon until it is stopped."""
    return run_daemon("vcdl_evaluator", __doc__.partition("\n")[0], evaluations, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
