"""What `vcdl run` and `vcdl resume` have in common: run a folder's job to its end or its pause, and say what came of it."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from vcdl.coordinator import StopReason
from vcdl.errors import ExitCode, JournalUnavailable, VcdlError
from vcdl.events import RunPaused
from vcdl.journal import Journal
from vcdl.local_run import LocalRun
from vcdl.report.display import display
from vcdl.report.measures import Report
from vcdl.report.onlooker import Onlooker
from vcdl.report.progress import Goal, measured_words, setback_words
from vcdl.report.summary import as_json as json_text
from vcdl.report.summary import summary_of
from vcdl.report.wording import duration, plural, printable
from vcdl.run.finding import is_finished, read_report, shown
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


def carry_on(folder: RunFolder, job: "Job", as_json: bool) -> ExitCode:
    """Run a job from where it is, leave its results and print them; of a finished one, print them again.

    The caller holds the folder's lock. Raises VcdlError, also at the end of a run that a shard brought down.
    """
    report = read_report(folder)
    if not is_finished(folder) or report.is_given_up:
        is_over = False
        try:
            with display(Goal.of(job), sys.stderr if as_json else sys.stdout) as onlooker:
                is_over = _run(folder, report, onlooker)
                if is_over:
                    report = leave_results(folder, job.name, onlooker)
        except KeyboardInterrupt:  # before the first subtask, while results are written, or a second Ctrl-C
            is_over = False
            _note_pause(folder)
        if not is_over:  # said when the display is gone, which would wipe it away
            click.echo(f"paused; `vcdl resume {shown(folder.path)}` goes on", err=True)
            return ExitCode.INTERRUPTED
    if as_json:
        click.echo(json_text(summary_of(job.name, report)), nl=False)
    else:
        _tell(folder, report)
    if report.is_given_up:
        raise _failure(report, job)
    return ExitCode.OK


def _run(folder: RunFolder, report: Report, onlooker: Onlooker) -> bool:
    """Run what is left; False: it was interrupted."""
    if report.finished and not report.is_given_up:
        return True  # killed while it wrote its results
    folder.summary_file.unlink(missing_ok=True)  # a job that is tried again is not finished
    return LocalRun(folder, onlooker).run() is not None


def _note_pause(folder: RunFolder) -> None:
    """In the journal, unless it is there: without a word the run would look killed."""
    if not read_report(folder).paused:
        journal = Journal.at(folder.journal_file)
        with suppress(JournalUnavailable):  # then it looks killed, and goes on as well
            journal.append(RunPaused("interrupted"))
        journal.close()


def _tell(folder: RunFolder, report: Report) -> None:
    reason = _REASONS[StopReason(report.stop.reason)] if report.stop else "it ended"
    epochs = plural(len(report.epochs), "epoch")
    click.echo(f"finished after {epochs} and {duration(report.wall_s)}: {reason}")
    what = "loss" if report.is_regression else "accuracy"
    for split, evaluated in (("validation", report.final_validation), ("test", report.final_test)):
        if evaluated is not None:
            value = evaluated.loss if evaluated.accuracy is None else evaluated.accuracy
            words = measured_words(value, report.is_regression)
            click.echo(f"{f'{split} {what}':<20} {words}  ({plural(evaluated.samples, 'sample')})")
    for name, path in (("model", folder.keras_file), ("plot", folder.plot_file), ("summary", folder.summary_file)):
        click.echo(f"{name:<20} {shown(path)}")


def _failure(report: Report, job: "Job") -> VcdlError:
    last = f" ({printable(setback_words(report.last_setback))})" if report.last_setback else ""
    return VcdlError(
        f"a shard was tried {job.grid.tries} times in vain{last}; the results are those of the updates before it. "
        "see workers.log in the run's folder, mend the cause, and `vcdl resume` tries again"
    )
