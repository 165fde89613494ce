"""`vcdl stop`: ask a run in another process to pause."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import in_project, project_of, project_option, run_argument
from vcdl.errors import ExitCode, RunFolderError

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_TIMEOUT_S = 60.0
"""Seconds to wait for a pause, as in `vcdl.run.control`, which is not imported here so that `--help` stays fast."""

_EXAMPLES = """\b
Examples:
  vcdl stop                        the run below runs/ that changed last
  vcdl stop runs/fashion_mnist --timeout 300
  vcdl stop mnist --project-dir ~/projects/grid --forget"""


def stop(path: Path | None = None, timeout_s: float = _TIMEOUT_S, forget: bool = False) -> ExitCode:
    """Ask a run to pause, and wait until it has paused.

    Args:
        path: The run, or None for the newest running one below runs/, otherwise the newest.
        timeout_s: Most seconds to wait.
        forget: For a finished job of a BOINC project: ask its clients to delete their files of it instead.

    Raises:
        GridError, RunFolderError: The run cannot be stopped.
    """
    from vcdl.run.control import pause
    from vcdl.run.finding import display_path, find_run, resume_hint
    from vcdl.run.reading import is_finished

    folder = find_run(path)
    # Only a finished job needs a request of its own: stopping an open one asks its clients, too.
    if forget and folder.kind.has_daemons and is_finished(folder):
        return _forget(folder)
    if forget and not folder.kind.has_daemons:
        raise RunFolderError(
            f"{display_path(folder.path)} is not a job of a BOINC project, so no client keeps files of it"
        )
    was_run = pause(folder, timeout_s)
    if is_finished(folder):
        click.echo(f"{display_path(folder.path)} is finished; there is nothing to stop")
    elif folder.kind.has_daemons:
        click.echo(f"{display_path(folder.path)} stopped, its workunits are cancelled; {resume_hint(folder)}")
    else:
        click.echo(
            f"{display_path(folder.path)} {'stopped' if was_run else 'was not being run'}; {resume_hint(folder)}"
        )
    return ExitCode.OK


def _forget(folder: "RunFolder") -> ExitCode:
    """Ask the clients of a BOINC project to delete a finished job's files, and print how many were asked."""
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.grid.forget import forget_finished
    from vcdl.run.finding import display_path

    with open_project(project_of(folder)) as (project, database):
        count = forget_finished(project, database, folder)
    click.echo(
        f"{display_path(folder.path)} is finished; "
        f"{count} clients are asked to delete what they keep of it, at their next request"
        if count
        else f"{display_path(folder.path)} is finished; no client keeps anything of it that no open job uses"
    )
    return ExitCode.OK


@click.command("stop", cls=ServedCommand, epilog=_EXAMPLES)
@run_argument
@project_option
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=_TIMEOUT_S,
    show_default=True,
    help="Longest wait.",
)
@click.option(
    "--forget", is_flag=True, help="For a finished job of a BOINC project: ask the clients to delete its files."
)
def command(path: Path | None, project_dir: Path | None, timeout_s: float, forget: bool) -> ExitCode:
    """Pause a run elsewhere, or a job of a BOINC project."""
    return stop(in_project(path, project_dir), timeout_s, forget)
