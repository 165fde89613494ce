"""`vcdl set`: change settings of an open job."""

from collections.abc import Sequence
from pathlib import Path

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import PATH, in_project, project_option
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl set mnist boinc.share=3 boinc.deadline_s=900 --project-dir ~/projects/grid
  vcdl set runs/digits stop.wall_time_s=7200      of a paused run; vcdl resume continues with it"""


def set_(path: Path, settings: Sequence[str]) -> ExitCode:
    """Change settings KEY=VALUE of an open job, and print which were changed.

    A run on one machine must be paused; the daemons of a BOINC project apply the change to a running job.

    Raises:
        JobError, RunFolderError, JournalError: A setting cannot be changed.
    """
    from vcdl.run.control import change
    from vcdl.run.finding import display_path, find_run

    folder = find_run(path)
    changed = change(folder, settings)
    for key, (before, now) in changed.items():
        click.echo(f"{display_path(folder.path)}: {key} is {now}, was {'not set' if before is None else before}")
    if not changed:
        click.echo(f"{display_path(folder.path)}: nothing changes")
    elif folder.kind.has_daemons:
        click.echo("the daemons follow it with their next round; workunits that exist keep their deadlines")
    return ExitCode.OK


@click.command("set", cls=ServedCommand, epilog=_EXAMPLES)
@click.argument("path", metavar="DIR", type=PATH)
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@project_option
def command(path: Path, settings: tuple[str, ...], project_dir: Path | None) -> ExitCode:
    """Change settings of an open job."""
    if project_dir is not None:
        from vcdl.boinc.grid.project_folder import BoincProject

        # Refuse another user than the project's, whose files the daemons could not read.
        BoincProject.at(project_dir).check_user()
    found = in_project(path, project_dir)
    return set_(path if found is None else found, settings)
