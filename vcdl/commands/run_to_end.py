"""The common part of `vcdl run` and `vcdl resume`: run a folder's job to its end or its pause, and report the
result.
"""

import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from vcdl.errors import ExitCode, JournalUnavailable, RunFolderError, VcdlError
from vcdl.journal.events import RunPaused, StopReason
from vcdl.journal.journal import Journal
from vcdl.report.display import display
from vcdl.report.measures import Report
from vcdl.report.observer import RunObserver
from vcdl.report.progress import RunGoal, final_words, setback_words
from vcdl.report.summary import as_json as json_text
from vcdl.report.summary import summary_of
from vcdl.report.wording import duration, plural, printable
from vcdl.run.finding import clock_of, is_finished, read_report, resume_hint, shown
from vcdl.run.folder import RunFolder
from vcdl.run.results import leave_results

if TYPE_CHECKING:
    from vcdl.job import Job

_REASONS = {
    StopReason.TARGET_ACCURACY: "the target accuracy is reached",
    StopReason.EPOCHS: "all epochs are done",
    StopReason.NO_IMPROVEMENT: "the accuracy no longer improves",
    StopReason.WALL_TIME: "its time is up",
    StopReason.SUBTASK_FAILED: "a shard kept failing",
}


def run_to_end(folder: RunFolder, job: "Job", as_json: bool) -> ExitCode:
    """Run a job from its present state, leave its results and print them; of a finished one, print them again.

    The caller holds the folder's lock. Raises VcdlError, also at the end of a run whose shard kept failing.
    """
    report = read_report(folder)
    if not is_finished(folder) or report.is_given_up:
        is_over = False
        try:
            with display(RunGoal.of(job), sys.stderr if as_json else sys.stdout, clock_of(folder)) as observer:
                is_over = _run(folder, report, observer)
                if is_over:
                    report = leave_results(folder, job.name, observer)
        except KeyboardInterrupt:  # before the first subtask, while results are written, or a second Ctrl-C
            is_over = False
            _note_pause(folder)
        if not is_over:  # printed after the display, which would wipe it away
            click.echo(f"paused; `vcdl resume {shown(folder.path)}` goes on", err=True)
            return ExitCode.INTERRUPTED
    if as_json:
        click.echo(json_text(summary_of(job.name, report)), nl=False)
    else:
        _tell(folder, report)
    if report.is_given_up:
        raise _failure(report, job)
    return ExitCode.OK


def _run(folder: RunFolder, report: Report, observer: RunObserver) -> bool:
    """Run the rest of the job; False: it was interrupted."""
    if report.finished and not report.is_given_up:
        return True  # killed while it wrote its results
    folder.summary_file.unlink(missing_ok=True)  # a retried job is not finished
    return _driver(folder)(folder, observer) is not None


def _driver(folder: RunFolder) -> Callable[[RunFolder, RunObserver], StopReason | None]:
    """The driver that runs the folder's job in this process, until its end or an interruption.

    Raises RunFolderError.
    """
    if folder.host.driver is None:
        raise RunFolderError(f"{folder.path} cannot be run here: {resume_hint(folder)}")
    driver: Callable[[RunFolder, RunObserver], StopReason | None] = pkgutil.resolve_name(folder.host.driver)
    return driver


def _note_pause(folder: RunFolder) -> None:
    """Record the pause in the journal, unless it is there: otherwise the run would look killed."""
    if not read_report(folder).paused:
        journal = Journal.at(folder.journal_file)
        with suppress(JournalUnavailable):  # then it looks killed, and can be resumed as well
            journal.append(RunPaused("interrupted"))
        journal.close()


def _tell(folder: RunFolder, report: Report) -> None:
    reason = _REASONS[StopReason(report.stop.reason)] if report.stop else "it ended"
    epochs = plural(len(report.epochs), "epoch")
    click.echo(f"finished after {epochs} and {duration(report.wall_s)}: {reason}")
    for split, words in final_words(report):
        click.echo(f"{split:<20} {words}")
    for name, path in (("model", folder.keras_file), ("plot", folder.plot_file), ("summary", folder.summary_file)):
        click.echo(f"{name:<20} {shown(path)}")


def _failure(report: Report, job: "Job") -> VcdlError:
    last = f" ({printable(setback_words(report.totals.last_setback))})" if report.totals.last_setback else ""
    return VcdlError(
        f"a shard was tried {job.grid.tries} times in vain{last}; the results are those of the updates before it. "
        "see workers.log in the run's folder, mend the cause, and `vcdl resume` tries again"
    )
