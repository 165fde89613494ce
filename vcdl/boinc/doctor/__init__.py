"""Find known faults of a BOINC project with VCDL, and name their cures.

Each module holds a group of checks, in a tuple CHECKS.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from vcdl.boinc.doctor import app, daemons, folders, installed_files, machine, mysql, runtime, secrets, uploads, web
from vcdl.boinc.doctor.finding import Finding, failed, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.environment import read_environment
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.errors import VcdlError

Check = Callable[[Installation], Iterator[Finding]]

_GROUPS: tuple[tuple[Check, ...], ...] = (
    machine.CHECKS,
    folders.CHECKS,
    installed_files.CHECKS,
    secrets.CHECKS,
    mysql.CHECKS,
    app.CHECKS,
    runtime.CHECKS,
    daemons.CHECKS,
    web.CHECKS,
    uploads.CHECKS,
)


_NEED_DATABASE: tuple[Check, ...] = (
    mysql.check_columns,
    mysql.check_clock,
    app.check_app,
    app.check_app_version,
    installed_files.check_templates,
    uploads.check_certificates,
)


def examine(project_dir: Path) -> Iterator[Finding]:
    """Run all checks on a project, and yield each finding as soon as it is made.

    If the project itself cannot be read, that is the only finding.
    """
    try:
        project = BoincProject.at(project_dir)
        config, environment = ServerConfig.at(project.path), read_environment(project.path)
    except VcdlError as error:
        yield replace(failed(f"{error}", "fix this first: nothing else can be checked until then"), check="project")
        return
    installation = Installation(project, config, BoincDatabase(project), environment)
    unreachable = False
    try:
        for check in (check for group in _GROUPS for check in group):
            name = check.__name__.removeprefix("check_").replace("_", " ")
            # Skip these checks, which would all wait for the same time-out and repeat the same message.
            if unreachable and check in _NEED_DATABASE:
                unasked = warning("not checked, as the database did not answer", "see database above")
                yield replace(unasked, check=name)
                continue
            try:
                yield from (replace(finding, check=name) for finding in check(installation))
            except VcdlError as error:
                # Report a check that fails to run as a finding, and run the other checks.
                yield replace(failed(f"{error}", "do as the message says"), check=name)
                unreachable |= check is mysql.check_database
    finally:
        installation.database.close()
