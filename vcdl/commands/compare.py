"""`vcdl compare`: runs side by side, their settings and their results."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import PATH, in_project, project_option, say
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.report.side_by_side import ComparedRun
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl compare runs/digits runs/digits-2
  vcdl compare runs/*
  vcdl compare runs/a runs/b --json | jq .settings

Runs that are not finished are compared by what is known of them so far. A star marks the
best value of a measure, and – what is not known."""


def compare(paths: Sequence[Path], as_json: bool = False) -> ExitCode:
    """Print the settings in which runs differ, and their results. Raises RunFolderError, JobError, JournalError."""
    from vcdl.report.side_by_side import comparison_json, comparison_lines
    from vcdl.run.finding import distinct_names
    from vcdl.run.folder import RunFolder

    folders = [RunFolder.existing(path) for path in paths]
    runs = [_compared(folder, name) for folder, name in zip(folders, distinct_names(folders), strict=True)]
    if as_json:
        click.echo(comparison_json(runs), nl=False)
        return ExitCode.OK
    return say(comparison_lines(runs, shutil.get_terminal_size().columns))


def _compared(folder: "RunFolder", name: str) -> "ComparedRun":
    from vcdl.report.side_by_side import ComparedRun
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import read_report, state_of

    job, report = read_frozen(folder), read_report(folder)
    return ComparedRun(
        name=name,
        folder=str(folder.path),
        state=state_of(folder, report).value,
        kind=folder.kind.name,
        job=job.name,
        settings={key: value for key, value in job.resolved().items() if key != "name"},
        report=report,
        epochs_wanted=job.stop.epochs,
        changed=" ".join(report.totals.changes),
        has_wall_clock=folder.kind.has_wall_clock,
    )


@click.command("compare", cls=ServedCommand, epilog=_EXAMPLES)
@click.argument("paths", metavar="RUN RUN...", nargs=-1, required=True, type=PATH)
@project_option
@click.option("--json", "as_json", is_flag=True, help="For programs: each run with the keys of its summary.json.")
def command(paths: tuple[Path, ...], project_dir: Path | None, as_json: bool) -> ExitCode:
    """Show settings and results of runs side by side."""
    if len(paths) < 2:
        raise click.UsageError("name at least two runs; `vcdl status` shows one")
    return compare([in_project(path, project_dir) or path for path in paths], as_json)
