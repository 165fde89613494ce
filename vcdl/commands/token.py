"""`vcdl token`: create, list and revoke the tokens of a service, and show its audit log."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vcdl.commands._options import FOLDER, pack_options, say
from vcdl.commands.serve import served_options
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.web.accounts import Accounts

F = TypeVar("F", bound=Callable[..., Any])
_ROLES = ("reader", "submitter", "operator", "worker")
_ENTRIES = 50
"""Entries of the audit log that are shown by default: as many as fit on a screen or two."""
_EXAMPLES = """\b
Examples:
  vcdl token add ada --role submitter --days 90
  vcdl token list
  vcdl token revoke 3f9c21ab --project-dir ~/projects/grid"""


def _where(function: F) -> F:
    """Add the options --folder and --project-dir, by which a user selects the service whose tokens are managed.

    The command gets `runs`, the folder of runs of this service.
    """
    folder = click.option("--folder", type=FOLDER, help="The folder that `vcdl serve` serves [default: runs].")
    return folder(served_options(function))


def _accounts(runs: Path) -> "Accounts":
    """Open the accounts of the service over a folder of runs.

    Raises:
        GridError: The packages of the service are not installed.
    """
    from vcdl.web.accounts import Accounts

    return Accounts(runs)


@dataclass(frozen=True)
class _NewToken:
    """The options of `vcdl token add`."""

    name: str
    role: str
    days: float
    job: str | None
    budget_usd: float | None
    boinc_account: str | None
    runs: Path


def _account(runs: Path, account: str) -> int:
    """Look up the number of a BOINC account in the project whose jobs are served.

    Args:
        runs: The folder of runs.
        account: The account, as the user gives it.

    Raises:
        JobError, GridError: The account does not exist, or the database cannot be reached.
    """
    from vcdl.web.catalogue import project_of

    project_dir = project_of(runs)
    if project_dir is None:
        raise click.UsageError("--boinc-account needs --project-dir: only a BOINC project has accounts")
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.environment import use_environment
    from vcdl.boinc.grid.kept_work import account_number
    from vcdl.boinc.grid.project_folder import BoincProject

    project = BoincProject.at(project_dir)
    use_environment(project)
    with closing(BoincDatabase(project)) as database:
        return account_number(database, account)


@click.group("token", epilog=_EXAMPLES)
def command() -> None:
    """Make, list and revoke tokens for the service."""


@command.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), default="reader", show_default=True, help="Role of the token.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), default=90.0, show_default=True, help="Days until it ends."
)
@click.option("--job", metavar="NAME", help="The only job for which a worker may train [default: all].")
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Money of fleets that a submitter's jobs may be planned to cost.",
)
@click.option("--boinc-account", metavar="EMAIL", help="The account to whose hosts a submitter may keep jobs.")
@_where
@pack_options(_NewToken, "new")
def add(new: _NewToken) -> ExitCode:
    """Make a token, and show it this once."""
    from vcdl.web.sessions import Role, TokenBounds

    role, account = new.role, None
    if new.job is not None and role != "worker":
        raise click.UsageError("--job is for workers: all other roles see every job")
    for option, value in (("--budget-usd", new.budget_usd), ("--boinc-account", new.boinc_account)):
        if value is not None and role != "submitter":
            raise click.UsageError(f"{option} is for submitters: no other role's jobs are bounded")
    if new.boinc_account is not None:
        # Store the account's number in the token, because its address may change.
        account = _account(new.runs, new.boinc_account)
    bounds = TokenBounds(new.job, new.budget_usd, account)
    # Print the token alone on a line, so that a script can read it.
    click.echo(_accounts(new.runs).add(new.name, Role[role.upper()], new.days, bounds))
    return ExitCode.OK


@command.command("list")
@_where
def list_(runs: Path) -> ExitCode:
    """List the tokens, without their secrets."""
    from vcdl.errors import printable
    from vcdl.report.wording import align_columns

    rows, accounts = [("id", "name", "role", "expires", "last used", "")], _accounts(runs)
    for one in accounts.tokens():
        # Show a revoked token as revoked even if it has expired since, because operators look for the revocation.
        state = "revoked" if one.revoked_s is not None else "" if one.is_valid else "expired"
        bounds = one.bounds
        role = one.role.name.lower() if bounds.job is None else f"worker of {printable(bounds.job)}"
        if bounds.budget_usd is not None:
            role += f", {accounts.planned_usd(one.name):.2f} of {bounds.budget_usd:.2f} $"
        if bounds.boinc_account is not None:
            role += f", account {bounds.boinc_account}"
        rows.append((one.id, printable(one.name), role, _day(one.expires_s), _day(one.used_s), state))
    return say(align_columns(rows, left=range(6)))


@command.command("revoke")
@click.argument("number", metavar="ID")
@_where
def revoke(number: str, runs: Path) -> ExitCode:
    """End a token and its sessions immediately."""
    from vcdl.errors import printable

    click.echo(f"the token {number} of {printable(_accounts(runs).revoke(number).name)} is revoked")
    return ExitCode.OK


@command.command("log")
@_where
def log(runs: Path) -> ExitCode:
    """Show who did what by the service, newest first."""
    from vcdl.errors import printable

    for one in _accounts(runs).actions(_ENTRIES):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.time_s))
        click.echo(printable(f"{when} {one.caller} {one.action} {one.job}: {one.outcome}"))
    return ExitCode.OK


def _day(time_s: float | None) -> str:
    return "never" if time_s is None else time.strftime("%Y-%m-%d", time.localtime(time_s))
