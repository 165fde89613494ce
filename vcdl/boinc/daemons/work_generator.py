"""`vcdl_work_generator`: create the workunits of each open job, as its journal and coordinator require.

One daemon serves a project. In each round it does the following for each open job:

1. Apply the events that other processes have written to the journal.
2. If the job has ended, remove its workunits and files. If a stop was requested, pause the job.
3. Otherwise take the run's lock and run one step of the loop, which creates and cancels workunits.
4. Set the credit of open workunits, and revoke the credit of banned hosts.

Then it clears away jobs that ended without that, suspends and readmits hosts, and writes the volunteers' page. It may
be killed at any moment, because each of these steps can be repeated.
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from vcdl.boinc.daemons.daemon import run_daemon
from vcdl.boinc.daemons.open_jobs import OpenJobs, open_runs
from vcdl.boinc.grid.create_work import WorkSettings
from vcdl.boinc.grid.credit import Credit, take_back
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.grid import BoincGrid, clear_job
from vcdl.boinc.grid.host_care import HostCare
from vcdl.boinc.grid.manifest import Manifests
from vcdl.boinc.grid.project_folder import RESULTS_WAIT, BoincProject, add_advice
from vcdl.boinc.grid.results import host_number
from vcdl.boinc.project.jobs_page import JobsPage
from vcdl.boinc.runtime.published import most_bytes
from vcdl.errors import ExitCode, GridError, JobError, JournalError, RunFolderError
from vcdl.files.atomic import sweep
from vcdl.journal.events import (
    EpochClosed,
    FilesChecked,
    HostConvicted,
    Recorded,
    RolledBack,
    RowsRewritten,
    RunPaused,
    RunStarted,
    SettingsChanged,
    StopDecided,
    StoreRestored,
    WorkunitCreated,
)
from vcdl.journal.kept_state import kept_history
from vcdl.journal.observer import RunObserver
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan, Publishing
from vcdl.report.progress import mended_words, rolled_back_words
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import is_finished
from vcdl.run.run import Run
from vcdl.trust.kept_hosts import hosts_out

_IDLE_S = 1.0
_SHARD_EXPANDS = 8
"""Largest ratio of a shard in memory to its compressed file: enough for images, which compress to half their size and
become four times as large as float32."""
_DISK_VECTORS = 8
"""Largest number of copies of the weights on a client's disk: download, update, and two checkpoints with moments."""
_SCRATCH_BYTES = 256 << 20
_PUBLISHED_EVERY_S = 1.0
_PUBLISHED_BYTES = 4 << 30
"""Most bytes in download/ for the published versions of a job (docs/decisions/038)."""
_HEADER_BYTES = 1 << 20
"""Most bytes that an update has in addition to its weights."""
_log = logging.getLogger("vcdl.loop.work_generator")


class Generation:
    """Creates the workunits of one job, by one step of its loop in each round.

    It holds the run's lock from the first step until a pause or `close`, so that no other process runs the job.
    """

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        """Open the job's run and grid.

        Raises:
            VcdlError: The run or its store cannot be opened.
        """
        run = Run.open(folder)
        journal = run.journal()
        with closing(journal):
            # Workunits that an earlier process has reported as sent are not read again from BOINC's tables.
            sent_until_s = kept_history(journal).advance().last_sent_s
        self._folder = folder
        self._grid = BoincGrid(project, database, work_settings(run, _runtime_bytes(project)), sent_until_s)
        plan = replace(Plan.of(run), publishing=self._publishing(run))
        self._loop = Loop.of(run, self._grid, plan=plan, observer=_Log(run.name))
        of_sample = run.prepared.footprint.flops_per_sample * run.job.training.local_epochs
        self._credit = Credit(database, run.name, [of_sample * samples for samples in run.prepared.shard_samples])
        self._database = database
        self._taken_back = 0
        """Number of the last ban for which credit was revoked."""
        self._lock: RunLock | None = None
        self._is_cleared = False

    def run_once(self) -> bool:
        """Run one round of the job's loop, and return whether anything new happened.

        Raises:
            VcdlError: The job cannot continue now.
        """
        # Read new events first, also for a paused job: assimilators, evaluator and `vcdl set` write to the journal.
        self._loop.follow()
        if self._loop.ended is not None:
            self._clear()
            return False  # the evaluator writes the results
        if self._folder.stop_request.exists():
            return self._pause()
        # Take the lock only after this check, because a paused job must not hold it.
        self._begin()
        new = self._loop.step()
        # Set the credit after the step, so that new workunits get their shard's credit before their first result is
        # validated.
        self._credit.follow()
        self._take_credit_back()
        self._clear()
        return bool(new)

    def close(self) -> None:
        self._release()
        self._loop.close()

    def _take_credit_back(self) -> None:
        """Revoke the credit that banned hosts got for their uploads.

        A restart repeats this, and finds nothing more to revoke.
        """
        for row in self._loop.journal.events_with_key_prefix(HostConvicted.keyed_by[0]):
            # Read all convictions in each round (there are few), and act on new ones. take_back is idempotent, so a
            # restart may repeat it.
            if row.id > self._taken_back and isinstance(event := row.event, HostConvicted):
                credit = take_back(self._database, host_number(event.host), {event.workunit, *event.again})
                if credit:
                    _log.warning("%s: banned; credit of %.3g for its uploads was revoked", event.host, credit)
                self._taken_back = row.id

    def _publishing(self, run: Run) -> Publishing | None:
        """Return how often new weights are published, so that all of them fit into a fixed space; None: never."""
        if not self._grid.offers_newest:
            return None
        deadline_s = run.job.boinc.deadline_s
        bytes_of_version = 4 * run.prepared.layout.size
        # A version stays for deadline_s after its successor, since a client may have started from it. So at most
        # deadline_s / every_s versions exist at a time, which bounds their size.
        every_s = deadline_s * bytes_of_version / _PUBLISHED_BYTES
        return Publishing(max(_PUBLISHED_EVERY_S, every_s), deadline_s)

    def _begin(self) -> None:
        """Take the run's lock, and record the start of a session if the job is new or was paused.

        A restarted daemon continues the session.
        """
        if self._lock is None:
            lock = RunLock(self._folder)
            # Not a `with`: the lock is held over many rounds, and released by a pause or `close`.
            lock.__enter__()
            self._lock = lock
            # Remove temporary files of a killed predecessor, under the lock, when no other process of this run writes.
            sweep(self._folder.path, below=True)
        history = self._loop.coordinator.history
        if history.paused is not None or history.sessions == 0:
            self._loop.begin_session(resumed=history.paused is not None)

    def _pause(self) -> bool:
        """Cancel all open workunits and release the run's lock; return whether the pause is new.

        The workunits are created again when the job is resumed.
        """
        is_new = self._loop.coordinator.history.paused is None
        # Write the pause in the first round after the request only; later rounds find it in the journal.
        if is_new:
            self._loop.pause("stop was requested")
        self._release()
        return is_new

    def _clear(self) -> None:
        """Remove a stopped job's files and workunits from the grid; retried in each round until it succeeds."""
        # Let clients keep their sticky files, because another job may use the same data. `vcdl project forget` deletes
        # them.
        if self._loop.coordinator.history.stop is not None and not self._is_cleared:
            self._grid.clear(forget_on_clients=False)
            self._is_cleared = True

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
            self._lock = None


class _Log(RunObserver):
    """Writes events of the loop to the daemon's log."""

    def __init__(self, name: str) -> None:
        self._name = name

    def events(self, events: Sequence[Recorded]) -> None:
        for event in (recorded.event for recorded in events):
            match event:
                case RunStarted() | RunPaused() | EpochClosed() | StopDecided() | SettingsChanged():
                    _log.info("%s: %s", self._name, event)
                case StoreRestored() | RowsRewritten() | FilesChecked():
                    _log.warning("%s: %s", self._name, mended_words(event))
                case RolledBack():
                    _log.warning("%s: %s", self._name, rolled_back_words(event))
                case WorkunitCreated():
                    _log.debug("%s: created", event.workunit)
                case _:
                    pass


def _runtime_bytes(project: BoincProject) -> int:
    try:
        return most_bytes(project.path)
    except GridError as error:
        _log.warning("the size of the runtimes is unknown, so hosts with too small a disk may get tasks: %s", error)
        return 0


def work_settings(run: Run, runtime_bytes: int) -> WorkSettings:
    """Return BOINC's settings for a run's subtasks.

    Args:
        run: The run.
        runtime_bytes: Bytes that the largest delivered runtime takes on a client's disk.

    Raises:
        OSError: A file of the run cannot be read.
    """
    job, prepared = run.job, run.prepared
    samples = sum(prepared.shard_samples) / len(prepared.shard_samples) * job.training.local_epochs
    # Take the largest shard, because all workunits of a job have the same limits.
    shard_bytes = max(file.stat().st_size for file in run.shard_files)
    weights_bytes = 4 * prepared.layout.size
    frozen_bytes = 4 * prepared.frozen.size if prepared.frozen else 0
    return WorkSettings(
        job=job.name,
        share=job.boinc.share,
        account=job.boinc.account if isinstance(job.boinc.account, int) else None,
        deadline_s=job.boinc.deadline_s,
        shortest_deadline_s=job.boinc.shortest_deadline_s,
        flops=prepared.footprint.flops_per_sample * samples,
        memory_bytes=prepared.footprint.memory_bytes(job.training.batch_size, _SHARD_EXPANDS * shard_bytes),
        disk_bytes=_DISK_VECTORS * weights_bytes + frozen_bytes + shard_bytes + _SCRATCH_BYTES + runtime_bytes,
        layout=run.layout.fingerprint,
        # Offer none with `pacing: epoch`, whose subtasks must all start from the same version (decision 038).
        offers_newest=job.boinc.fresh_weights and job.pacing.kind == "rolling",
        upload_bytes=run.upload_check().up.most_file_bytes + _HEADER_BYTES,
        late_after=job.late_after,
        queue_ahead=None if job.pacing.queue_ahead == "auto" else job.pacing.queue_ahead,
    )


class Clearing:
    """Removes the files and workunits that a finished job left because its work generator was killed or failed."""

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder) -> None:
        self._project, self._database, self._name = project, database, folder.path.name

    def run_once(self) -> bool:
        """Remove the job's remaining files and workunits.

        Raises:
            GridError: The project or its database cannot be used.
        """
        clear_job(self._project, self._database, self._name, forget_on_clients=False)
        return True

    def close(self) -> None:
        pass


def finished_runs_with_downloads(project: BoincProject) -> list[RunFolder]:
    """Return the folders of finished jobs that still have files in download/.

    Raises:
        GridError: The folder of the jobs cannot be read.
    """
    with add_advice(project.runs_folder, RESULTS_WAIT):
        folders = (project.run_folder(job) for job in sorted(Manifests(project).jobs()))
        return [folder for folder in folders if is_finished(folder)]


class WorkGenerators:
    """The daemon: each round serves every open job, clears away ended jobs, and suspends or readmits hosts."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project
        self._database = BoincDatabase(project)
        self._jobs = OpenJobs(project, lambda folder: Generation(project, self._database, folder))
        self._left = OpenJobs(
            project, lambda folder: Clearing(project, self._database, folder), finished_runs_with_downloads
        )
        self._care = HostCare(project, self._database)
        self._page = JobsPage(project)

    def run_once(self) -> bool:
        worked = self._jobs.run_once()
        # Clear ended jobs after the open ones, because the latter's manifests show which shared files are still needed.
        self._left.run_once()
        self._care.suspend_failing(self._quarantined_hosts)
        self._page.write_when_due()
        return worked

    def _quarantined_hosts(self) -> dict[int, str]:
        """Return the hosts that an open job has in quarantine: host's id in BOINC's database → reason."""
        found: dict[int, str] = {}
        for folder in open_runs(self._project):
            with suppress(JobError, RunFolderError, JournalError):  # the job's own part reports it
                out = hosts_out(read_frozen(folder), folder)
                found |= {host_number(name): f"in quarantine of the job {folder.path.name}" for name in out}
        return found

    def close(self) -> None:
        self._jobs.close()
        self._left.close()
        self._database.close()


def main() -> ExitCode:
    """Run the daemon until it is stopped."""
    return run_daemon("vcdl_work_generator", __doc__.partition("\n")[0], WorkGenerators, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
