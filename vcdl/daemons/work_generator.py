"""`vcdl_work_generator`: follows the journal of each open job and acts on it; one runs in a project, and bin/start sees to that.

Everything is read off the journal, BOINC's database and the file stop.request, so it may be killed and started again at any moment.
"""

import logging
import sys
import time
from collections.abc import Sequence

from vcdl.codecs.choose import up_encoding
from vcdl.coordinator import Coordinator
from vcdl.daemons.daemon import run_daemon
from vcdl.daemons.open_jobs import OpenJobs
from vcdl.errors import ExitCode
from vcdl.events import EpochClosed, Recorded, RunPaused, RunStarted, StopDecided, WorkunitCreated, WorkunitSent
from vcdl.grids.boinc.database import BoincDatabase
from vcdl.grids.boinc.grid import BoincGrid, clear_job
from vcdl.grids.boinc.manifest import Manifests
from vcdl.grids.boinc.project_folder import BoincProject, not_readable
from vcdl.grids.boinc.work_settings import WorkSettings
from vcdl.job import Job, load_frozen_job
from vcdl.journal import Journal
from vcdl.plan import Plan
from vcdl.rules.of_job import rule_of
from vcdl.run.downloads import Downloads
from vcdl.run.finding import is_finished
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.prepared import Prepared, store_settings
from vcdl.run.snapshots import Snapshots
from vcdl.stores.open import import_client_library, open_store
from vcdl.work_generator import WorkGenerator

_IDLE_S = 1.0
_SHARD_EXPANDS = 8
"""Compressed bytes of a shard → float32 in memory, at most: integer images compress to half and become four times as long."""
_DISK_VECTORS = 8
"""Weights as they come, update, and checkpoints with an optimizer's moments, of which two exist while one is replaced."""
_SCRATCH_BYTES = 256 << 20
_HEADER_BYTES = 1 << 20
"""More than an update has beside its weights."""
_log = logging.getLogger("vcdl.work_generator")


class Generation:
    """Makes the workunits of one job, and holds the run's lock while the job is not paused."""

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        """Raises VcdlError."""
        job, prepared = load_frozen_job(folder.job_file), Prepared.read(folder)
        settings = store_settings(job, folder)
        import_client_library(settings)
        self._name, self._folder = job.name, folder
        self._journal = Journal.at(folder.journal_file)
        self._store = open_store(settings, prepared.store_key, prepared.layout.size, rule_of(job).state)
        self._coordinator = Coordinator(Plan.of(job, prepared.has_test, prepared.shard_samples))
        self._grid = BoincGrid(project, database, work_settings(job, prepared, folder), _sent_until_s(self._journal))
        self._generator = WorkGenerator(
            job.name,
            job.seed,
            prepared.training(job),
            tuple(folder.shard(number) for number in range(job.data.shards)),
            folder,
            self._coordinator,
            self._journal,
            Snapshots(folder, self._store, job.name, prepared.layout.fingerprint),
            self._grid,
            Downloads(folder, prepared.layout, job.transport.told),
            job.keeps_uploads,
        )
        self._lock: RunLock | None = None
        self._session: RunStarted | RunPaused | None = None
        """The newest of these events."""
        self._is_cleared = False

    def run_once(self) -> bool:
        """Bring the job one step further. Raises VcdlError."""
        self._take_in(self._generator.follow())
        if self._coordinator.finished:
            self._clear()
            return False  # the evaluator leaves the results
        if self._folder.stop_request.exists():
            return self._pause()
        self._begin()
        self._generator.record_sent()
        new = self._generator.run_once(time.time())
        self._take_in(new)
        self._clear()
        return bool(new)

    def close(self) -> None:
        self._let_go()
        self._journal.close()
        self._store.close()

    def _begin(self) -> None:
        """A session, unless one goes on: the first one, or one after a pause. A daemon that was started again goes on in the same one."""
        if self._lock is None:
            lock = RunLock(self._folder)
            lock.__enter__()
            self._lock = lock
        if not isinstance(self._session, RunStarted):
            self._journal.append(RunStarted(resumed=self._session is not None))
            self._take_in(self._generator.follow())

    def _pause(self) -> bool:
        """Take back all that is out; it is made again when the job is resumed."""
        is_new = not isinstance(self._session, RunPaused)
        if is_new:
            self._grid.clear(forget_on_clients=True)
            self._journal.append(RunPaused("stop was requested"))
            self._take_in(self._generator.follow())
        self._let_go()
        return is_new

    def _clear(self) -> None:
        """Once the job has stopped, until it has succeeded: also in the rounds after the one that ended the run."""
        if self._coordinator.stopped is not None and not self._is_cleared:
            self._grid.clear(forget_on_clients=False)
            self._is_cleared = True

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
            self._lock = None

    def _take_in(self, events: Sequence[Recorded]) -> None:
        """Remember the session and log what happened."""
        for event in (recorded.event for recorded in events):
            match event:
                case RunStarted() | RunPaused():
                    self._session = event
                    _log.info("%s: %s", self._name, event)
                case EpochClosed() | StopDecided():
                    _log.info("%s: %s", self._name, event)
                case WorkunitCreated():
                    _log.debug("%s: created", event.workunit)
                case _:
                    pass


def work_settings(job: Job, prepared: Prepared, folder: RunFolder) -> WorkSettings:
    """What BOINC must know of a job's subtasks. Raises OSError when a shard is gone."""
    samples = sum(prepared.shard_samples) / len(prepared.shard_samples) * job.training.local_epochs
    shard_bytes = max(folder.shard(number).stat().st_size for number in range(job.data.shards))
    weights_bytes = 4 * prepared.layout.size
    return WorkSettings(
        job=job.name,
        priority=job.boinc.priority,
        deadline_s=job.boinc.deadline_s,
        flops=prepared.footprint.flops_per_sample * samples,
        memory_bytes=prepared.footprint.memory_bytes(job.training.batch_size, _SHARD_EXPANDS * shard_bytes),
        disk_bytes=_DISK_VECTORS * weights_bytes + shard_bytes + _SCRATCH_BYTES,
        upload_bytes=up_encoding(job.transport.told, prepared.layout).most_file_bytes + _HEADER_BYTES,
        ahead=None if job.schedule.ahead == "auto" else job.schedule.ahead,
    )


def _sent_until_s(journal: Journal) -> float:
    """When the last workunit was sent that the journal knows of; Unix time, 0 for none."""
    return max((r.time_s for r in journal.read() if isinstance(r.event, WorkunitSent)), default=0.0)


class Clearing:
    """Takes away what a finished job has left in the project: its work generator was killed, or failed, before it could."""

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        self._project, self._database, self._name = project, database, folder.path.name

    def run_once(self) -> bool:
        """Raises GridError."""
        clear_job(self._project, self._database, self._name, forget_on_clients=False)
        return True

    def close(self) -> None:
        pass


def left_staged(project: BoincProject) -> list[RunFolder]:
    """The folders of finished jobs that still have something in download/. Raises GridError."""
    try:
        folders = (project.run_folder(job) for job in sorted(Manifests(project).jobs()))
        return [folder for folder in folders if is_finished(folder)]
    except OSError as error:
        raise not_readable(project.runs_folder, error) from error


class WorkGenerators:
    """Goes round the open jobs, and those that were not cleared away."""

    def __init__(self, project: BoincProject) -> None:
        self._database = BoincDatabase(project)
        self._jobs = OpenJobs(project, lambda folder: Generation(project, self._database, folder))
        self._left = OpenJobs(project, lambda folder: Clearing(project, self._database, folder), left_staged)

    def run_once(self) -> bool:
        worked = self._jobs.run_once()
        self._left.run_once()
        return worked

    def close(self) -> None:
        self._jobs.close()
        self._left.close()
        self._database.close()


def main() -> ExitCode:
    """Generate work until told to end."""
    return run_daemon("vcdl_work_generator", __doc__.partition("\n")[0], WorkGenerators, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
