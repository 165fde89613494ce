"""`vcdl resume`: continue a run that was paused or killed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import in_project, project_option, run_argument, say, summary_option
from vcdl.errors import ExitCode, RunFolderError
from vcdl.run.finding import resume_hint

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl resume                      the run below runs/ that changed last
  vcdl resume runs/fashion_mnist
  vcdl resume runs/digits --set training.learning_rate=0.001      after a divergence

A run continues from the last applied update, whatever ended it."""


def resume(path: Path | None = None, as_json: bool = False, overrides: Sequence[str] = ()) -> ExitCode:
    """Continue a run to its end or next pause, and print its results; a finished run only prints them again.

    A job of a BOINC project is continued by the project's daemons, and this returns at once.

    Args:
        path: The run, or None for the one below runs/ that changed last.
        as_json: Print the summary as JSON at the end.
        overrides: Settings KEY=VALUE that are changed first, and stay changed.

    Raises:
        VcdlError: The run cannot continue, or a setting cannot be changed.
    """
    from vcdl.local.warm_workers import one_thread

    one_thread()
    from vcdl.commands.run_to_end import run_to_end
    from vcdl.run.control import change
    from vcdl.run.finding import find_run
    from vcdl.run.folder import RunLock
    from vcdl.run.frozen_job import read_frozen

    folder = find_run(path, running_first=False)
    # Change settings before the run is continued, also for daemons, which read them in their next round.
    if overrides:
        for key, (before, now) in change(folder, overrides).items():
            click.echo(f"{key} is {now}, was {'not set' if before is None else before}", err=as_json)
    # Daemons drive such a run, so this process only removes the request to pause.
    if folder.kind.has_daemons:
        return _release(folder)
    if folder.kind.driver is None:
        raise RunFolderError(f"{folder.path} cannot be resumed: {resume_hint(folder)}")
    job = read_frozen(folder)
    with RunLock(folder):
        return run_to_end(folder, job, as_json)


def _release(folder: "RunFolder") -> ExitCode:
    """Remove the pause of a BOINC project's job, so that its daemons continue it, and print what happens."""
    from vcdl.run.control import release
    from vcdl.run.finding import display_path

    goes_on = "continues with the next round of the project's work generator; `vcdl watch` shows it"
    then = goes_on if release(folder) else "is finished; `vcdl status` shows its results"
    return say([f"{display_path(folder.path)} {then}"])


@click.command("resume", cls=ServedCommand, epilog=_EXAMPLES)
@run_argument
@project_option
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a setting first, as `vcdl set`.")
@summary_option
def command(path: Path | None, project_dir: Path | None, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Continue a run that was paused or killed."""
    return resume(in_project(path, project_dir, running_first=False), as_json, overrides)
