"""`vcdl watch`: the live display of a run in another process."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import server_option, watch_job
from vcdl.commands._options import costs_of, fleet_option, in_project, project_option, run_argument
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder
    from vcdl.run.reading import RunFollower

_EXAMPLES = """\b
Examples:
  vcdl watch                                   the run below runs/ that changed last
  vcdl watch mnist --project-dir ~/projects/grid

Ctrl-C ends the display, not the run."""


def watch(path: Path | None = None, fleet: Path | None = None) -> ExitCode:
    """Show a run of another process until it has ended or paused, or until Ctrl-C, which ends only the display.

    Args:
        path: The run, or None for the newest running one below runs/, otherwise the newest.
        fleet: File of the fleet that trains the run, to show money; or None.

    Raises:
        RunFolderError, JobError, JournalError: The run cannot be read.
    """
    from vcdl.errors.backoff import wait_until
    from vcdl.journal.observer import RunObserver
    from vcdl.report.display import display
    from vcdl.report.progress import RunGoal
    from vcdl.run.finding import display_path, find_run, quote_path
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import RunFollower, clock_of, state_of

    folder = find_run(path)
    job = read_frozen(folder)
    # Create a follower before the display, so that `follower` exists below if Ctrl-C comes while the display starts.
    follower = RunFollower(folder, RunObserver())
    try:
        with display(RunGoal.of(job, costs_of(fleet)), sys.stdout, clock_of(folder)) as observer:
            observer.phase(f"{job.name} in {display_path(folder.path)}")
            follower = RunFollower(folder, observer)
            wait_until(partial(_look, folder, follower), every_s=0.5)
    except KeyboardInterrupt:
        pass
    state = state_of(folder, follower.report)
    click.echo(f"{job.name}: {state}; `vcdl status {quote_path(folder.path)}` shows all figures")
    return ExitCode.OK


def _look(folder: "RunFolder", follower: "RunFollower") -> bool:
    """Show new events; return whether the run is finished, paused or killed, so that no more will follow."""
    from vcdl.run.reading import RunState, is_finished, state_of

    # Check for the end before the journal is read: if the run has ended, everything of it is then read in this call.
    was_finished = is_finished(folder)
    follower.poll()
    follower.tell_tasks()
    return was_finished or state_of(folder, follower.report) in (RunState.PAUSED, RunState.KILLED)


@click.command("watch", epilog=_EXAMPLES)
@run_argument
@project_option
@fleet_option
@server_option
def command(path: Path | None, project_dir: Path | None, fleet: Path | None, server: str | None) -> ExitCode:
    """Show a run's progress, live."""
    return watch(in_project(path, project_dir), fleet) if server is None else watch_job(server, path)
