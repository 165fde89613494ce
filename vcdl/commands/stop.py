"""`vcdl stop`: ask a run in another process to pause."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import in_project, project_option
from vcdl.errors import ExitCode, RunFolderError
from vcdl.run.finding import resume_hint

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_POLL_S = 0.1
_TIMEOUT_S = 60.0
"""Seconds to wait: checkpoints take a few; Keras at a run's start and a final evaluation take longest."""

_EXAMPLES = """\b
Examples:
  vcdl stop                        the run below runs/ that changed last
  vcdl stop runs/fashion_mnist --timeout 300
  vcdl stop mnist --project-dir ~/projects/grid --forget"""


def stop(path: Path | None = None, timeout_s: float = _TIMEOUT_S, forget: bool = False) -> ExitCode:
    """Ask a run to pause, and wait until its process has gone; `forget`: free the clients' disks of a finished
    job.

    Raises GridError, and RunFolderError when the process has not gone in time.
    """
    from vcdl.errors import folder_errors
    from vcdl.run.finding import chosen_run, is_finished, shown

    folder = chosen_run(path)
    if folder.host.has_daemons:
        return _forget(folder) if forget and is_finished(folder) else _take_back(folder, timeout_s)
    if forget:
        raise RunFolderError(f"{shown(folder.path)} is no job of a BOINC project: no client keeps files of it")
    pid = folder.running_pid
    if pid is not None:
        with folder_errors(folder.path):
            folder.stop_request.touch()
        deadline_s = time.monotonic() + timeout_s
        while folder.running_pid == pid:
            if time.monotonic() > deadline_s:
                raise RunFolderError(
                    f"process {pid} still runs {shown(folder.path)} after {timeout_s:g} s; it has been asked to stop: "
                    f"wait longer with --timeout, or end it with `kill {pid}`"
                )
            time.sleep(_POLL_S)
        folder.stop_request.unlink(missing_ok=True)
    if is_finished(folder):
        click.echo(f"{shown(folder.path)} is finished; there is nothing to stop")
    else:
        was = "stopped" if pid is not None else "was not being run"
        click.echo(f"{shown(folder.path)} {was}; {resume_hint(folder)}")
    return ExitCode.OK


def _take_back(folder: "RunFolder", timeout_s: float) -> ExitCode:
    """Have a BOINC project's work generator cancel open workunits; the request stays until `vcdl resume`."""
    from vcdl.errors import folder_errors
    from vcdl.run.finding import is_finished, read_report, shown

    if is_finished(folder):
        click.echo(f"{shown(folder.path)} is finished; there is nothing to stop")
        return ExitCode.OK
    with folder_errors(folder.path):
        folder.stop_request.touch()
    deadline_s = time.monotonic() + timeout_s
    while not read_report(folder).paused:
        if time.monotonic() > deadline_s:
            raise RunFolderError(
                f"{shown(folder.path)} is asked to stop, but the project's work generator has not done it after "
                f"{timeout_s:g} s: it will when it runs (bin/start starts it) and can continue the job: "
                "see log_HOST/vcdl_work_generator.log"
            )
        time.sleep(_POLL_S)
    click.echo(f"{shown(folder.path)} stopped, its workunits are cancelled; `vcdl resume {shown(folder.path)}` goes on")
    return ExitCode.OK


def _forget(folder: "RunFolder") -> ExitCode:
    """Ask clients of a BOINC project to delete a finished job's files; a stopped job has asked them already."""
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.forget import forget_finished
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.run.finding import shown

    project = BoincProject.at(folder.path.parents[2])
    database = BoincDatabase(project)
    try:
        count = forget_finished(project, database, folder)
    finally:
        database.close()
    click.echo(
        f"{shown(folder.path)} is finished; "
        f"{count} clients are asked to delete what they keep of it, at their next request"
        if count
        else f"{shown(folder.path)} is finished; no client keeps anything of it that no open job uses"
    )
    return ExitCode.OK


@click.command("stop", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
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
