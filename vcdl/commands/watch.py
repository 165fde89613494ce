"""`vcdl watch`: the live display of a run in another process."""

import sys
import time
from pathlib import Path

import click

from vcdl.commands._options import in_project, project_option
from vcdl.errors import ExitCode

_POLL_S = 0.5

_EXAMPLES = """\b
Examples:
  vcdl watch                                   the run below runs/ that changed last
  vcdl watch mnist --project-dir ~/projects/grid

Ctrl-C ends the display, not the run."""


def watch(path: Path | None = None) -> ExitCode:
    """Show a run until it has ended or is paused. Raises RunFolderError, JobError, JournalError."""
    from vcdl.report.display import display
    from vcdl.report.observer import RunObserver
    from vcdl.report.progress import RunGoal
    from vcdl.run.finding import chosen_run, shown
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import RunFollower, RunState, clock_of, is_finished, state_of

    folder = chosen_run(path)
    job = read_frozen(folder)
    following = RunFollower(folder, RunObserver())
    try:
        with display(RunGoal.of(job), sys.stdout, clock_of(folder)) as observer:
            observer.phase(f"{job.name} in {shown(folder.path)}")
            following = RunFollower(folder, observer)
            while True:
                was_finished = is_finished(folder)
                following.look()
                following.tell_tasks()
                if was_finished or state_of(folder, following.report) in (RunState.PAUSED, RunState.KILLED):
                    break
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        pass
    state = state_of(folder, following.report)
    click.echo(f"{job.name}: {state}; `vcdl status {shown(folder.path)}` shows all figures")
    return ExitCode.OK


@click.command("watch", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@project_option
def command(path: Path | None, project_dir: Path | None) -> ExitCode:
    """Show a run's progress, live."""
    return watch(in_project(path, project_dir))
