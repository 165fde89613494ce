"""`vcdl status`: a run's progress, read from its journal during the run or afterwards."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import (
    costs_of,
    fleet_option,
    in_project,
    project_of,
    project_option,
    run_argument,
    say,
    say_json,
)
from vcdl.errors import ExitCode, GridError

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl status                      the run below runs/ that changed last
  vcdl status runs/digits
  vcdl status runs/digits --json | jq .state
  vcdl status mnist --project-dir ~/projects/grid"""


def status(path: Path | None = None, as_json: bool = False, fleet: Path | None = None) -> ExitCode:
    """Print a run's state and figures, and what to do if it does not continue.

    Args:
        path: The run, or None for the newest running one below runs/, otherwise the newest.
        as_json: Print JSON.
        fleet: File of the fleet that trains the run, to show money; or None.

    Raises:
        RunFolderError, JobError, JournalError, FleetError: The run or the fleet cannot be read.
    """
    from vcdl.run.finding import display_path, find_run, resume_hint
    from vcdl.run.reading import RunState
    from vcdl.run.standing import Standing

    folder = find_run(path)
    standing = Standing.of(folder, costs=costs_of(fleet))
    found = _troubles(folder) if standing.state in (RunState.RUNNING, RunState.WAITING) else []
    if found:
        # The work generator holds the run's lock while it waits, so the state alone would say "running".
        standing = replace(standing, state=RunState.WAITING, now_s=None)
    if as_json:
        return say_json(standing.fields(troubles=found, **_failed_tasks(folder)))
    state, pid = standing.state, folder.running_pid
    click.echo(f"{standing.job.name} in {display_path(folder.path)}: {state}{f' (process {pid})' if pid else ''}")
    say(f"{label:<12} {words}" for label, words in standing.figures().items())
    failed = _failed_tasks(folder)
    # Show BOINC's failed tasks separately: it replaces them within a workunit, so the journal does not know of them.
    if any(failed.values()):
        click.echo(
            f"{'at BOINC':<12} {failed['tasks_failed']} tasks failed, "
            f"{failed['tasks_timed_out']} passed their deadline: sent again"
        )
    say(f"{'waits for':<12} {trouble}" for trouble in found)
    if state is RunState.WAITING and not found:
        click.echo(
            "the project's work generator does not run (bin/start starts it), or cannot continue with this job: "
            "see log_HOST/vcdl_work_generator.log"
        )
    elif state in (RunState.PAUSED, RunState.KILLED, RunState.FAILED):
        click.echo(resume_hint(folder))
    return ExitCode.OK


def _troubles(folder: "RunFolder") -> list[str]:
    """Return why a BOINC project's daemons do not continue a job; empty if they do, or for another kind of run."""
    if not folder.kind.has_daemons:
        return []
    from vcdl.boinc.grid.job_bytes import over_quota
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.boinc.project.processes import troubles

    project_dir = project_of(folder)
    found = troubles(project_dir)
    with suppress(GridError):  # another user may not read the reason
        found += [large] if (large := over_quota(BoincProject.at(project_dir), folder.path.name)) else []
    return found


def _failed_tasks(folder: "RunFolder") -> dict[str, int]:
    """Return the numbers of a BOINC job's failed and late tasks, which BOINC itself has replaced.

    Returns:
        `tasks_failed` and `tasks_timed_out`; empty for another kind of run, or if the database cannot be read.
    """
    if not folder.kind.has_daemons:
        return {}
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.grid.host_report import facts_of

    try:
        with open_project(project_of(folder)) as (project, database):
            facts = facts_of(project, database, folder.path.name).values()
    except GridError:
        return {}
    return {"tasks_failed": sum(each.errors for each in facts), "tasks_timed_out": sum(each.timeouts for each in facts)}


@click.command("status", cls=ServedCommand, epilog=_EXAMPLES)
@run_argument
@project_option
@fleet_option
@click.option("--json", "as_json", is_flag=True, help="For programs: the state and the keys of summary.json.")
def command(path: Path | None, project_dir: Path | None, fleet: Path | None, as_json: bool) -> ExitCode:
    """Show a run's progress, also while it runs."""
    return status(in_project(path, project_dir), as_json, fleet)
