"""`vcdl project`: install VCDL in a BOINC project, examine it, and take it out."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from vcdl.boinc.project.install_options import SERVICE_PORT, InstallOptions
from vcdl.commands._options import PATH, THERE, json_option, pack_options, say, say_json
from vcdl.errors import ExitCode, for_shell

_EXAMPLES = """\b
Examples:
  vcdl project install --project-dir ~/projects/mine --dry-run
  vcdl project install --project-dir ~/projects/mine --redis redis://127.0.0.1:6379
  vcdl project doctor --project-dir ~/projects/mine
  vcdl project uninstall --project-dir ~/projects/mine"""

_project_dir = click.option(
    "--project-dir", required=True, metavar="DIR", type=PATH, help="The BOINC project, made by make_project."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")


@click.group("project", epilog=_EXAMPLES)
def command() -> None:
    """Put VCDL into a BOINC project, examine it, take it out."""


@command.command("install")
@_project_dir
@click.option(
    "--redis",
    "store_url",
    metavar="URL",
    help="Where weights are kept; also mysql://…. The password: VCDL_STORE_PASSWORD.",
)
@click.option(
    "--python",
    default=sys.executable,
    metavar="PATH",
    type=THERE,
    help="The Python that runs our daemons.  [default: this one]",
)
@click.option(
    "--threads", type=click.IntRange(1, 64), metavar="N", help="Cores of a CPU task.  [default: as before; at first 1]"
)
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="FILE",
    type=THERE,
    help="A Python for volunteers of one platform, made by vcdl client runtime; may be repeated.  [default: as before]",
)
@click.option(
    "--without-runtime",
    "without_runtimes",
    multiple=True,
    metavar="PLATFORM",
    help="Stop publishing this platform's; with _gpu, the one for its GPUs.",
)
@click.option(
    "--container",
    "containers",
    multiple=True,
    metavar="FILE",
    type=THERE,
    help="BOINC's docker_wrapper of one platform, whose tasks then run in containers, or a base made by vcdl client "
    "base; may be repeated.  [default: as before]",
)
@click.option(
    "--without-container",
    "without_containers",
    multiple=True,
    metavar="PLATFORM",
    help="Offer no container for this one of BOINC's platforms any more.",
)
@click.option(
    "--web",
    "service_port",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=SERVICE_PORT,
    metavar="[PORT]",
    help=f"Show the jobs in browsers, by a daemon at this port of 127.0.0.1 [default: as before; {SERVICE_PORT}; 0: no "
    "longer]",
)
@click.option("--force", is_flag=True, help="Give up tasks of other apps that were made without upload certificates.")
@_dry_run
@pack_options(InstallOptions, "options")
def install_command(project_dir: Path, dry_run: bool, options: InstallOptions) -> ExitCode:
    """Add app, daemons, plan classes and settings to a project, or update them."""
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.project.install import install, preview
    from vcdl.boinc.project.plan import password_from_environment, plan_install, service_command

    # The password may come from the environment, because arguments of a command are visible to all users of the
    # machine.
    password = password_from_environment(options.store_url, os.environ) if options.store_url else ""
    # Make the path absolute, but do not resolve it: a virtual environment's Python is a link, and its target knows no
    # packages.
    wished = replace(options, python=Path.cwd() / options.python, store_password=password)
    with open_project(project_dir) as (project, database):
        plan = plan_install(project, database, wished)
        # The wording is fixed, because `vcdl server install` runs this with --dry-run and looks for it.
        if plan.changes_nothing:
            return say(["nothing to change: VCDL is installed and up to date"])
        say(preview(plan) if dry_run else install(plan, database))
    if options.service_port:
        _say_how_apache_passes(service_command(plan.config, options.service_port))
    if not dry_run:
        click.echo(
            f"installed; now, in {project.path}: bin/stop; bin/start "
            f"(daemons read config.xml when they start), then "
            f"vcdl project doctor --project-dir {for_shell(project_dir)}"
        )
    return ExitCode.OK


def _say_how_apache_passes(command: str) -> None:
    """Print the configuration by which the project's web server forwards requests to the service, for root to add.

    Args:
        command: The command of the service's daemon, which contains its port and path.
    """
    from vcdl.boinc.server.texts import service_location

    words = command.split()
    port, path = words[words.index("--port") + 1], words[words.index("--path") + 1]
    click.echo(
        f"""for the web server, as root: a2enmod proxy_http, these lines next to the project's own, and a reload
{service_location(port, path)}
then `vcdl token add NAME --role operator --project-dir PROJECT` makes who may log in at {path}/"""
    )


@command.command("disk")
@_project_dir
@json_option
def disk_command(project_dir: Path, as_json: bool) -> ExitCode:
    """Show the bytes that each job holds on the server's disks, and what is free."""
    from vcdl.boinc.grid.disk_room import free_by_folder
    from vcdl.boinc.grid.job_bytes import JobBytes, quota_bytes
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.report.wording import align_columns, size

    project = BoincProject.at(project_dir)
    quota, free = quota_bytes(project), free_by_folder(project)
    jobs = {path.parent.name: JobBytes.of(project, path.parent.name) for path in project.runs_folder.glob("*/job.yaml")}
    if as_json:
        fields = {name: {**vars(job), "total": job.total} for name, job in sorted(jobs.items())}
        there = {str(folder): size_bytes for folder, size_bytes in free.items()}
        return say_json({"jobs": fields, "quota": quota, "free": there})
    table = [("job", *vars(JobBytes()), "total")]
    for name, job in sorted(jobs.items(), key=lambda item: -item[1].total):
        over = " (over its quota)" if quota is not None and job.total > quota else ""
        table.append((name, *(size(part) if part else "–" for part in vars(job).values()), f"{size(job.total)}{over}"))
    return say(
        (*align_columns(table), *(f"{size(size_bytes)} free for {folder}" for folder, size_bytes in free.items()))
    )


@command.command("uninstall")
@_project_dir
@click.option("--force", is_flag=True, help="Cancel open jobs instead of refusing.")
@click.option("--delete-runs", is_flag=True, help="Delete the jobs' folders too, with all trained models.")
@click.option(
    "--delete-rows",
    is_flag=True,
    help="Delete the app from the database even if hosts have had tasks of it, with its workunits and results.",
)
@_dry_run
def uninstall_command(project_dir: Path, force: bool, delete_runs: bool, delete_rows: bool, dry_run: bool) -> ExitCode:
    """Take VCDL out of a project and restore its files."""
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.project.uninstall import plan_removal

    with open_project(project_dir) as (project, database):
        removal = plan_removal(project, database, force=force, delete_runs=delete_runs, delete_rows=delete_rows)
        return say(removal.preview() if dry_run else removal.carry_out(database))


@command.command("doctor")
@_project_dir
@click.option("--json", "as_json", is_flag=True, help="For programs: a list of findings.")
def doctor_command(project_dir: Path, as_json: bool) -> ExitCode:
    """Check everything that is known to go wrong; each failure names a cure."""
    from vcdl.boinc.doctor import examine
    from vcdl.boinc.doctor.finding import Level, as_text, to_json

    findings = []
    for finding in examine(project_dir):
        findings.append(finding)
        # Print each finding as it is found: slow checks take ten seconds, and the user can read in the meantime.
        if not as_json:
            click.echo(as_text(finding))
    if as_json:
        click.echo(to_json(findings), nl=False)
    failed = any(finding.level == Level.FAILED for finding in findings)
    return ExitCode.SERVICE if failed else ExitCode.OK
