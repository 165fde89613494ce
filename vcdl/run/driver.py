"""Drive a run in this process, from its beginning to its results.

If a run is refused before its first subtask, its files are removed.
"""

import pkgutil
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vcdl.errors import JournalUnavailable, RunFolderError, VcdlError, printable
from vcdl.job import Job
from vcdl.journal.events import RunFinished, RunPaused, StopReason
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver
from vcdl.report.measures import Report
from vcdl.report.progress import setback_words
from vcdl.run.finding import resume_hint, unfinished_error
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import driven_kind
from vcdl.run.reading import is_finished, journal_of, read_report
from vcdl.run.results import leave_results


def results_of(folder: RunFolder) -> Report | None:
    """Return the report of a run that finished successfully, or None if it is unfinished or failed.

    Raises:
        JournalError: The journal cannot be read.
    """
    report = read_report(folder) if is_finished(folder) else None
    return None if report is None or report.is_given_up else report


def drive(folder: RunFolder, job: Job, observer: RunObserver) -> Report | None:
    """Run the remaining subtasks of a job, write its results, and return its report.

    The caller holds the folder's RunLock.

    Returns:
        None if the run was interrupted or asked to pause; the journal then contains the pause.

    Raises:
        VcdlError: The run cannot continue.
        KeyboardInterrupt: Ctrl-C before the first subtask or while results are written, or a second Ctrl-C.
    """
    # If the job has ended, an earlier process was killed while it wrote the results. Otherwise remove an old summary
    # first: its existence means "finished", and a retried job that is killed must not look finished.
    if not _has_ended(folder):
        folder.summary_file.unlink(missing_ok=True)
        if _driver(folder)(folder, observer) is None:
            return None
    return leave_results(folder, job.name, observer)


def _has_ended(folder: RunFolder) -> bool:
    """Return whether a run's training and evaluations are over, so that only its results are left to write.

    Raises:
        JournalError: The journal cannot be read.
    """
    with journal_of(folder) as journal:
        # An index answers most calls. The journal is read only if the run has finished once, to see whether it was
        # reopened.
        if journal is None or not journal.newest(RunFinished.kind, 1):
            return False
    report = read_report(folder)
    return report.history.finished and not report.is_given_up


def note_pause(folder: RunFolder) -> None:
    """Append a pause to the journal if its last session has none, because the run would otherwise look killed."""
    # The loop writes the row when it pauses regularly. This covers an interrupt before or after the loop.
    if not read_report(folder).history.paused:
        journal = Journal.at(folder.journal_file)
        with suppress(JournalUnavailable):  # without the row the run looks killed, and can be resumed as well
            journal.append(RunPaused("interrupted"))
        journal.close()


def failed_shard_error(folder: RunFolder, job: Job, report: Report) -> VcdlError:
    """Return the error for a run that ended because a subtask failed as often as allowed, with its last cause."""
    last = f" ({printable(setback_words(report.totals.last_setback))})" if report.totals.last_setback else ""
    tried, look = f"a shard was tried {job.grid.tries} times and always failed", "see workers.log in the run's folder"
    if job.is_for_strangers:
        tried, look = "every host that tried a shard failed at it", "see which and at what by `vcdl hosts`"
    cure = resume_hint(folder)
    if folder.kind.has_wall_clock:  # a simulation is simply restarted with other settings
        cure += "; change a setting by `vcdl resume --set training.learning_rate=…`"
    return VcdlError(
        f"{tried}{last}; the results are those of the updates before it. {look}, fix the cause, and {cure}"
    )


def _driver(folder: RunFolder) -> Callable[[RunFolder, RunObserver], StopReason | None]:
    """Return the function that drives the folder's job in this process and returns None if the run paused.

    Raises:
        RunFolderError: No process of this machine drives such a run.
    """
    if folder.kind.driver is None:
        raise RunFolderError(f"{folder.path} cannot be run here: {resume_hint(folder)}")
    driver: Callable[[RunFolder, RunObserver], StopReason | None] = pkgutil.resolve_name(folder.kind.driver)
    return driver


@contextmanager
def discard_if_refused(folder: RunFolder, *, is_new: bool) -> Iterator[None]:
    """Remove a run's files if the block fails before the run is prepared; Ctrl-C and signals keep them.

    The caller holds the folder's RunLock.

    Args:
        folder: The run's folder.
        is_new: Whether the folder was created for the run, and is therefore removed too.
    """
    try:
        yield
    except Exception:  # not only refusals: without a backend of Keras it is an ImportError, without memory another one
        if not folder.prepared_file.exists():
            _discard(folder, is_new)
        raise


def _discard(folder: RunFolder, is_new: bool) -> None:
    """Remove a run's folder, or only its content if the folder existed before the run."""
    if is_new:
        shutil.rmtree(folder.path, ignore_errors=True)
        return
    for entry in folder.path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


@contextmanager
def create_run(folder: RunFolder, job: Job, grid: str = "local") -> Iterator[Job]:
    """Create a new run in a folder, lock it, and yield the job as it was written there.

    The lock is held until the block ends. If the block fails before the run is prepared, the run's files are removed.

    Args:
        folder: The folder, which may be empty or missing.
        job: The job.
        grid: The name of the run's kind.

    Raises:
        RunFolderError, PluginError, JobError: The run cannot start.
    """
    kind = driven_kind(grid)
    is_new = not folder.path.exists()
    folder.make()
    # The folder has to exist before it can be locked, and must be locked before its content can be trusted.
    with RunLock(folder):
        if folder.job_file.exists():  # another process has started a run here meanwhile
            raise unfinished_error(folder.path)
        with discard_if_refused(folder, is_new=is_new):
            # Write the kind before the job file: if the process is killed in between, the folder has no job, but never
            # a job of the wrong kind (decision 022).
            folder.create(kind)
            yield freeze(job.trusting(folder.kind.trust), folder)
