"""`vcdl submit`: a job from its file to the clients of a BOINC project."""

import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import submit_job
from vcdl.commands._options import job_file_argument, project_dir_option, set_option
from vcdl.errors import ExitCode, GridError, JobError, VcdlError

if TYPE_CHECKING:
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.job import Job
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl submit job.yaml --project-dir ~/projects/grid
  vcdl submit job.yaml --project-dir ~/projects/grid --set boinc.share=3
  vcdl submit job.yaml --server lab                     from anywhere, after vcdl login
  vcdl watch --project-dir ~/projects/grid

Run it as the project's user. The project's daemons take up the job at once; this process ends."""


def submit(job_file: Path, project_dir: Path, overrides: Sequence[str] = ()) -> ExitCode:
    """Submit a job file to a BOINC project, whose daemons then train it, and print the job's name.

    If this fails, nothing of the job remains.

    Raises:
        VcdlError: The job cannot be submitted.
    """
    from vcdl.job import SMALL_FLEET, load_job
    from vcdl.run.finding import quote_path

    job, _ = submit_to_project(load_job(job_file, overrides, SMALL_FLEET), project_dir)
    click.echo(f"submitted {job.name}: {job.data.shards} shards, {job.stop.epochs} epochs at most")
    click.echo(f"`vcdl watch {job.name} --project-dir {quote_path(project_dir.resolve())}` shows its progress")
    return ExitCode.OK


def submit_to_project(job: "Job", project_dir: Path) -> "tuple[Job, RunFolder]":
    """Submit a job to a BOINC project: take a free name, create its run's folder and prepare it.

    Returns:
        The job with its final name and settings, and the folder of its run. Nothing has been trained yet.

    Raises:
        VcdlError: The job cannot be submitted; nothing of it remains.
    """
    from vcdl.boinc.grid.environment import use_environment
    from vcdl.boinc.grid.job_bytes import check_room
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.loop.preparation import prepare
    from vcdl.report.display import display
    from vcdl.report.progress import RunGoal
    from vcdl.run.frozen_job import freeze
    from vcdl.run.kind import BOINC

    project = BoincProject.at(project_dir)
    # Check this first: as another user every later step would leave files that the daemons cannot use.
    project.check_user()
    # The store in the project's environment is the one that its daemons open.
    use_environment(project)
    _check_account(project, job)
    job, folder = _take_name(project, job.trusting(BOINC.trust))
    try:
        folder.create(BOINC)
        job = freeze(job, folder)
        with display(RunGoal.of(job), sys.stderr) as observer:
            prepare(folder, job, observer, partial(check_room, project, job.name))
    except (VcdlError, OSError, KeyboardInterrupt):
        # Keep the folder once `prepared_file` exists: the daemons may have started the job already.
        if not folder.prepared_file.exists():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return job, folder


def _check_account(project: "BoincProject", job: "Job") -> None:
    """Check that the hosts of the job's account can train the job.

    Raises:
        JobError: The account cannot be used here.
        GridError: The database cannot be reached.
    """
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.kept_work import account_number
    from vcdl.boinc.project.server_config import ServerConfig

    account = job.boinc.account
    if account is None:
        return
    if account == "own":
        raise JobError(
            "boinc > account: `own` is for jobs that are submitted through a service: give the number of the BOINC "
            "account"
        )
    if ServerConfig.at(project.path).settings.get("enable_assignment") != "1":
        raise JobError(
            "boinc > account: the project sends no work to chosen hosts: set <enable_assignment> in its config.xml to 1"
        )
    with closing(BoincDatabase(project)) as database:
        account_number(database, str(account))


def _take_name(project: "BoincProject", job: "Job") -> tuple["Job", "RunFolder"]:
    """Reserve a name that was never used in the project, by creating the folder of the run.

    Returns:
        The job with this name: its own, or with a number appended if that is taken; and the new folder.

    Raises:
        JobError: The name is not allowed.
        GridError: No name is free, or the database cannot be reached.
        RunFolderError: The folder cannot be created.
    """
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.grid.workunit_rows import was_submitted
    from vcdl.errors import folder_errors
    from vcdl.run.finding import numbered_names

    if "nodelete" in job.name:
        raise JobError(
            f"name: {job.name}: BOINC keeps every file of workunits with `nodelete` in their names; choose another"
        )
    with folder_errors(project.runs_folder), open_project(project.path) as (_, database):
        project.runs_folder.mkdir(parents=True, exist_ok=True)
        for name in numbered_names(job.name):
            # Check the database as well as folders: a job's folder may have been deleted, and BOINC never accepts a
            # name twice.
            if was_submitted(database, name):
                continue
            folder = project.run_folder(name)
            try:
                # Creating the folder reserves the name: of two submitters at the same moment, one gets FileExistsError.
                folder.path.mkdir(mode=0o700)  # a submitter's data are closed to other users of this machine
            except FileExistsError:
                continue
            return job.model_copy(update={"name": name}), folder
    raise GridError(f"no name is left for {job.name}: choose another name in the job file")


@click.command("submit", epilog=_EXAMPLES)
@job_file_argument
@project_dir_option("The BOINC project, with the app of `vcdl project install`.")
@click.option("--server", metavar="NAME", help="A service of `vcdl login`.")
@click.option("--no-wait", is_flag=True, help="With --server: do not watch the job.")
@set_option
def command(
    job_file: Path, project_dir: Path | None, server: str | None, no_wait: bool, overrides: tuple[str, ...]
) -> ExitCode:
    """Train a job on a BOINC project's clients, or by a service."""
    if (project_dir is None) == (server is None):
        raise click.UsageError("say where: --project-dir PROJECT on its machine, or --server NAME")
    if project_dir is None:
        return submit_job(str(server), job_file, overrides, wait=not no_wait)
    return submit(job_file, project_dir, overrides)
