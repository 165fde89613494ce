"""`vcdl jobs`: all jobs of a BOINC project, or all runs here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vcdl.commands._elsewhere import server_option, show_jobs
from vcdl.commands._options import json_option, project_dir_option, say, say_json
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl jobs --project-dir ~/projects/grid
  vcdl jobs                        the runs below runs/
  vcdl jobs --project-dir ~/projects/grid --json | jq '.[] | select(.state == "running")'"""


def jobs(project_dir: Path | None = None, as_json: bool = False) -> ExitCode:
    """Print a row for each job of a BOINC project, or for each run below runs/ without a project.

    Raises:
        RunFolderError, JobError, JournalError: The jobs cannot be read.
    """
    from vcdl.run.finding import all_runs, no_run
    from vcdl.run.reading import RunState
    from vcdl.run.standing import job_rows, lines_of, part_of
    from vcdl.trust.kept_hosts import bringing

    folders = all_runs(project_dir)
    rows = job_rows(folders, bringing)
    # Look for troubles only if a job seems to run, because that opens the project's database.
    found = _troubles(project_dir) if any(row.state is RunState.RUNNING for row in rows) else []
    if found:  # the work generator holds the run's lock and waits, for example while the database is unavailable
        waits: dict[str, Any] = {"state": RunState.WAITING, "seconds_left": None, "range_left": None}
        rows = [replace(row, **waits) if row.state is RunState.RUNNING else row for row in rows]
    fields = [row.fields(part_of(row, rows)) for row in rows]
    if as_json:
        return say_json(fields)
    if not rows:
        raise no_run(project_dir)
    return say([*lines_of(fields), *(f"the project waits for: {trouble}" for trouble in found)])


def _troubles(project_dir: Path | None) -> list[str]:
    from vcdl.boinc.project.processes import troubles

    return [] if project_dir is None else troubles(project_dir)


@click.command("jobs", epilog=_EXAMPLES)
@project_dir_option("A BOINC project [default: the runs below runs/].")
@server_option
@json_option
def command(project_dir: Path | None, server: str | None, as_json: bool) -> ExitCode:
    """List all jobs of a project, or all runs here."""
    return jobs(project_dir, as_json) if server is None else show_jobs(server, as_json)
