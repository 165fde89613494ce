"""`vcdl compare`: runs side by side, their settings and their results."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import PATH, in_project, project_option, say
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl compare runs/digits runs/digits-2
  vcdl compare runs/*
  vcdl compare runs/a runs/b --json | jq .settings

Runs that are not finished are compared by what is known of them so far. A star marks the
best value of a measure, and – what is not known."""


def compare(paths: Sequence[Path], as_json: bool = False) -> ExitCode:
    """Print runs side by side, finished or not: their results, and the settings in which they differ.

    Raises:
        RunFolderError, JobError, JournalError: A run cannot be read.
    """
    from vcdl.report.side_by_side import comparison_json, comparison_lines
    from vcdl.run.finding import distinct_names
    from vcdl.run.folder import RunFolder
    from vcdl.run.standing import Standing

    folders = [RunFolder.existing(path) for path in paths]
    runs = [Standing.of(folder).as_column(name) for folder, name in zip(folders, distinct_names(folders), strict=True)]
    if as_json:
        click.echo(comparison_json(runs), nl=False)
        return ExitCode.OK
    return say(comparison_lines(runs, shutil.get_terminal_size().columns))


@click.command("compare", cls=ServedCommand, epilog=_EXAMPLES)
@click.argument("paths", metavar="RUN RUN...", nargs=-1, required=True, type=PATH)
@project_option
@click.option("--json", "as_json", is_flag=True, help="For programs: each run with the keys of its summary.json.")
def command(paths: tuple[Path, ...], project_dir: Path | None, as_json: bool) -> ExitCode:
    """Show settings and results of runs side by side."""
    if len(paths) < 2:
        raise click.UsageError("name at least two runs; `vcdl status` shows one")
    return compare([in_project(path, project_dir) or path for path in paths], as_json)
