"""Simulate a run, from its settings to its results, for `vcdl simulate` and for experiments."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from vcdl.client.processors import limit_threads
from vcdl.errors import RunFolderError
from vcdl.files.atomic import whole_file
from vcdl.job import Job
from vcdl.journal.observer import RunObserver
from vcdl.report.measures import Report
from vcdl.report.summary import as_json, summary_of, write_summary
from vcdl.run.driver import discard_if_refused
from vcdl.run.finding import RUNS, holds_anything
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import SIMULATED
from vcdl.run.reading import is_finished, read_report
from vcdl.run.results import leave_results
from vcdl.simulate.client_fleet import ClientFleet, save_clients
from vcdl.simulate.times_report import TimesReport
from vcdl.simulate.training import PooledTraining, SubtaskTraining
from vcdl.simulate.virtual_run import VirtualRun
from vcdl.simulate.weightless import run_times

_KEPT = frozenset({"data", "given", "host", "run.lock"})
"""Entries that stay when a run starts again: the data would be cut in the same way, and this process holds the lock."""
_NAMES = 10_000
"""Most names tried in the search for a free one, so that it ends."""
TIMES_FILE = "times.json"
"""The file in a run's folder with the figures of a simulation without training."""


def simulate(
    folder: RunFolder,
    job: Job,
    fleet: ClientFleet,
    observer: RunObserver,
    training: SubtaskTraining | None = None,
    kind: type[VirtualRun] = VirtualRun,
) -> Report | None:
    """Run a job on simulated clients with real training, and write its results to the folder.

    An unfinished simulation in the folder is started again. Limits this process to one thread for computing, so that
    the results can be repeated.

    Args:
        folder: The run's folder: empty, missing, or of an unfinished simulation.
        job: The job.
        fleet: The simulated clients.
        observer: Its hooks are called with events and phases.
        training: Trains the subtasks; None for `job.workers` worker processes.
        kind: The class that runs the job.

    Returns:
        The report, or None if `vcdl stop` paused the run.

    Raises:
        VcdlError: The job was refused or failed.
        RunFolderError: The folder cannot be used.
    """
    os.environ.update(limit_threads(1))  # several threads would add up in an order that differs from run to run
    with _create_run(folder, fleet):
        freeze(job.trusting(SIMULATED.trust), folder)
        training = training or PooledTraining(folder, job.workers)
        if kind(folder, fleet, training, observer).run() is None:
            return None
        return leave_results(folder, job.name, observer)


def simulate_times(folder: RunFolder, job: Job, fleet: ClientFleet, observer: RunObserver) -> TimesReport | None:
    """Run a job on simulated clients without training, and write the figures to TIMES_FILE in the folder.

    Returns:
        The figures, or None if `vcdl stop` paused the run.

    Raises:
        VcdlError: The job was refused or failed.
    """
    with _create_run(folder, fleet):
        report = run_times(folder, freeze(job.trusting(SIMULATED.trust), folder), fleet, observer)
        if report is not None:
            with whole_file(folder.path / TIMES_FILE) as temporary:
                temporary.write_text(as_json(report.as_dict()), encoding="utf-8")
            write_summary(folder.summary_file, summary_of(job.name, read_report(folder)))
        return report


def default_folder(name: str) -> RunFolder:
    """Return the first of runs/NAME, runs/NAME-2, … that is free or has an unfinished simulation; create nothing.

    Raises:
        RunFolderError: All names are in use.
    """
    for number in range(1, _NAMES + 1):
        folder = RunFolder((RUNS / (name if number == 1 else f"{name}-{number}")).resolve())
        if _may_begin_in(folder) and folder.running_pid is None:
            return folder
    raise RunFolderError(f"no name is free for {name} below {RUNS}/: choose a folder with --out")


def _may_begin_in(folder: RunFolder) -> bool:
    """Return whether a simulation may start in a folder: it is empty, or has an unfinished simulation."""
    return not holds_anything(folder.path) or (folder.kind is SIMULATED and not is_finished(folder))


@contextmanager
def _create_run(folder: RunFolder, fleet: ClientFleet) -> Iterator[None]:
    """Lock a folder for the block, and create a simulated run in it with its clients.

    Files of an unfinished simulation are removed, except those in _KEPT. If the job is refused before it is prepared,
    the run's files are removed.
    """
    _check_room(folder)
    is_new = not folder.path.exists()
    folder.make()
    # The folder was checked before it was locked, to refuse early. `_make_room` checks again under the lock.
    with RunLock(folder), discard_if_refused(folder, is_new=is_new):
        _make_room(folder)
        folder.create(SIMULATED)
        save_clients(fleet, folder)
        yield


def _check_room(folder: RunFolder) -> None:
    """Raise RunFolderError if no simulation may start in a folder."""
    if not _may_begin_in(folder):
        raise RunFolderError(f"{folder.path} is not empty: choose another folder (--out, or out= in Python)")


def _make_room(folder: RunFolder) -> None:
    """Remove the files of an unfinished simulation, except those in _KEPT.

    Raises:
        RunFolderError: The run has finished since `_check_room`.
    """
    if is_finished(folder):
        raise RunFolderError(f"{folder.path} holds a finished run: choose another folder (--out, or out= in Python)")
    for entry in folder.path.iterdir():
        if entry.name not in _KEPT:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
