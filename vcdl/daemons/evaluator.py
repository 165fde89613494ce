"""`vcdl_evaluator`: measures versions of the open jobs on held-out data, and leaves the results of a job that has ended.

Its own process, as Keras lives in it: nothing that assimilates or makes work ever waits for it.
"""

import logging
import sys

from vcdl.daemons.daemon import run_daemon
from vcdl.daemons.open_jobs import OpenJobs
from vcdl.errors import ExitCode
from vcdl.evaluator import Evaluator
from vcdl.events import StopDecided
from vcdl.grids.boinc import database  # noqa: F401  MariaDB's library goes before TensorFlow's, see vcdl.stores.open
from vcdl.grids.boinc.project_folder import BoincProject
from vcdl.job import load_frozen_job
from vcdl.report.onlooker import Onlooker
from vcdl.rules.of_job import rule_of
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared, store_settings
from vcdl.run.recovery import drop_weights
from vcdl.run.results import leave_results
from vcdl.run.snapshots import Snapshots
from vcdl.stores.open import open_store

_IDLE_S = 1.0
_log = logging.getLogger("vcdl.evaluator")


class Evaluation:
    """Evaluates one job."""

    def __init__(self, folder: RunFolder) -> None:
        """Raises VcdlError."""
        self._folder = folder
        self._job = load_frozen_job(folder.job_file)
        self._evaluator = Evaluator(folder, self._job)

    def run_once(self) -> bool:
        """Evaluate what is wanted. Raises VcdlError."""
        count = self._evaluator.run_once()
        if count:
            _log.debug("%s: %d versions evaluated", self._job.name, count)
        if self._evaluator.run_has_finished:
            report = leave_results(self._folder, self._job.name, Onlooker())
            if report.stop is not None:
                self._drop_weights(report.stop)
            _log.info("%s: finished; its results are in %s", self._job.name, self._folder.path)
            return True
        return count > 0

    def close(self) -> None:
        self._evaluator.close()

    def _drop_weights(self, stopped: StopDecided) -> None:
        """Now that the results are there, no daemon looks into the store any more."""
        prepared = Prepared.read(self._folder)
        settings, state = store_settings(self._job, self._folder), rule_of(self._job).state
        store = open_store(settings, prepared.store_key, prepared.layout.size, state)
        drop_weights(store, Snapshots(self._folder, store, self._job.name, prepared.layout.fingerprint), stopped)
        store.close()


class Evaluations:
    """Goes round the open jobs."""

    def __init__(self, project: BoincProject) -> None:
        self._jobs = OpenJobs(project, Evaluation)

    def run_once(self) -> bool:
        return self._jobs.run_once()

    def close(self) -> None:
        self._jobs.close()


def main() -> ExitCode:
    """Evaluate until told to end."""
    return run_daemon("vcdl_evaluator", __doc__.partition("\n")[0], Evaluations, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
