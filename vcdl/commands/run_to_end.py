"""The common part of `vcdl run` and `vcdl resume`: a folder's job to its end or pause, with its results."""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import say, say_json
from vcdl.errors import ExitCode
from vcdl.report.display import announce, display
from vcdl.report.measures import Report
from vcdl.report.outcome import outcome_lines
from vcdl.report.progress import RunGoal
from vcdl.report.summary import summary_of
from vcdl.run.driver import drive, failed_shard_error, note_pause, results_of
from vcdl.run.finding import display_path, quote_path
from vcdl.run.folder import RunFolder
from vcdl.run.reading import clock_of

if TYPE_CHECKING:
    from vcdl.job import Job


def run_to_end(folder: RunFolder, job: "Job", as_json: bool) -> ExitCode:
    """Drive a run to its end or a pause, and print its results; a finished run only prints them again.

    Args:
        folder: The run; the caller holds its RunLock.
        job: Its settings.
        as_json: Print the summary as JSON, and everything else to stderr.

    Returns:
        OK, or INTERRUPTED for a pause.

    Raises:
        VcdlError: The run cannot continue, or a shard kept failing.
    """
    # A run that is finished only prints its results again.
    report = results_of(folder) or _run(folder, job, as_json)
    if report is None:  # printed after the display, which would wipe it away
        click.echo(f"paused; `vcdl resume {quote_path(folder.path)}` continues", err=True)
        return ExitCode.INTERRUPTED
    if as_json:
        say_json(summary_of(job.name, report))
    else:
        _tell(folder, report)
    # Raise the error after the figures, because the results are valid although the run was given up.
    if report.is_given_up:
        raise failed_shard_error(folder, job, report)
    return ExitCode.OK


def _run(folder: RunFolder, job: "Job", as_json: bool) -> Report | None:
    from vcdl.local.run import warm_workers_for

    # With JSON, stdout is reserved for it.
    stream = sys.stderr if as_json else sys.stdout
    try:
        with ExitStack() as entered:
            with announce("importing Keras", stream):
                entered.enter_context(warm_workers_for(job, folder.kind))  # before the display, which has a thread
            observer = entered.enter_context(display(RunGoal.of(job), stream, clock_of(folder)))
            return drive(folder, job, observer)
    except KeyboardInterrupt:  # before the first subtask, while results are written, or a second Ctrl-C
        note_pause(folder)
        return None


def _tell(folder: RunFolder, report: Report) -> None:
    say(outcome_lines(report))
    files = {"model": folder.keras_file, "plot": folder.plot_file, "confusion matrix": folder.confusion_picture}
    for name, path in {**files, "summary": folder.summary_file}.items():
        if path == folder.plot_file and not path.is_file():
            cure = f"`pip install 'vcdl[plot]'`, then `vcdl plot {quote_path(folder.path)}`"
            click.echo(f"{name:<20} not drawn: {cure}")
        elif path != folder.confusion_picture or path.is_file():
            click.echo(f"{name:<20} {display_path(path)}")
