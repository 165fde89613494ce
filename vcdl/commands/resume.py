"""`vcdl resume`: go on with a run that was paused or killed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands.project_option import in_project, project_option
from vcdl.errors import ExitCode, RunFolderError

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl resume                      the run below runs/ that changed last
  vcdl resume runs/fashion_mnist

A run goes on from the last update that was applied, whatever ended it."""


def resume(path: Path | None = None, as_json: bool = False) -> ExitCode:
    """Carry a run on to its end, or to its next pause; of a finished one, print the results. Raises VcdlError."""
    from vcdl.commands.carry_on import carry_on
    from vcdl.commands.going_on import how_to_go_on
    from vcdl.job import load_frozen_job
    from vcdl.run.finding import chosen_run
    from vcdl.run.folder import RunLock
    from vcdl.simulate.fleet import is_simulated

    folder = chosen_run(path)
    if folder.submitted_file.exists():
        return _release(folder)
    if is_simulated(folder):
        raise RunFolderError(f"{folder.path} is a simulation: {how_to_go_on(folder)}")
    job = load_frozen_job(folder.job_file)
    with RunLock(folder):
        return carry_on(folder, job, as_json)


def _release(folder: "RunFolder") -> ExitCode:
    """Let the daemons of a BOINC project go on with a job."""
    from vcdl.events import RunReopened
    from vcdl.journal import Journal
    from vcdl.run.finding import is_finished, read_report, shown

    report = read_report(folder)
    if report.is_given_up:
        journal = Journal.at(folder.journal_file)
        journal.append(RunReopened())
        journal.close()
        folder.summary_file.unlink(missing_ok=True)
    elif is_finished(folder):
        click.echo(f"{shown(folder.path)} is finished; `vcdl status` shows its results")
        return ExitCode.OK
    folder.stop_request.unlink(missing_ok=True)
    click.echo(f"{shown(folder.path)} goes on as soon as the project's work generator looks; `vcdl watch` shows it")
    return ExitCode.OK


@click.command("resume", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@project_option
@click.option("--json", "as_json", is_flag=True, help="Print summary.json at the end; the display goes to stderr.")
def command(path: Path | None, project_dir: Path | None, as_json: bool) -> ExitCode:
    """Go on with a run that was paused or killed."""
    return resume(in_project(path, project_dir), as_json)
