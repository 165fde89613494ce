"""`vcdl fleet`: launch, watch, scale and end preemptible instances that are clients of a BOINC project."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import THERE, dry_run_option, fleet_file, json_option, open_fleet, say
from vcdl.commands.fleet_money import cost_command, plan_command, prices_command
from vcdl.errors import ExitCode, FleetError, JobError, for_shell

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet
    from vcdl.fleet.state import FleetState

_EXAMPLES = """\b
Examples:
  vcdl fleet plan                      what it would cost; launches nothing
  vcdl fleet up                        launch up to the target, once
  vcdl fleet run                       from now on replace lost instances
  vcdl fleet unit                      the same as a service that survives reboots
  vcdl fleet status
  vcdl fleet scale 80                  another target; `scale file`: the file's
  vcdl fleet drain --wait              finish running subtasks, then end all
  vcdl fleet down                      end all now, and check that nothing is left
  vcdl fleet cost

The fleet file is fleet.yaml in the current folder unless FILE is given."""


@click.group("fleet", epilog=_EXAMPLES)
def command() -> None:
    """Keep preemptible instances as a project's clients."""


for _elsewhere in (plan_command, cost_command, prices_command):
    command.add_command(_elsewhere)


@command.command("up")
@fleet_file
@click.option(
    "--from-plan",
    "plan_file",
    metavar="FILE",
    type=THERE,
    help="The target and the part on demand that `vcdl plan --fleet … --json` recommends.",
)
@dry_run_option
def up_command(file: Path, overrides: tuple[str, ...], plan_file: Path | None, dry_run: bool) -> ExitCode:
    """Launch up to the target, once."""
    from vcdl.fleet.choices import planned_settings
    from vcdl.fleet.run import up

    if plan_file is not None:
        overrides = (*overrides, *planned_settings(plan_file))
    return _bring(open_fleet(file, overrides), up, dry_run)


@command.command("scale")
@click.argument("target", metavar="N")
@fleet_file
@dry_run_option
def scale_command(target: str, file: Path, overrides: tuple[str, ...], dry_run: bool) -> ExitCode:
    """Set another target, in units; the word `file` restores the file's own target, or the queue's."""
    from vcdl.fleet.run import scale_to
    from vcdl.fleet.state import FleetGoal

    fleet = open_fleet(file, overrides)
    limit = fleet.settings.capacity.limit
    if target != "file" and not (target.isdecimal() and int(target) <= limit):
        raise JobError(f"scale {target}: expected a whole number from 0 to {limit} (capacity > max), or the word file")
    # Refuse to scale a fleet that is down: the target would only be stored, which would look like success.
    if fleet.folder.read().goal is not FleetGoal.UP:
        raise FleetError(f"{fleet.settings.name} is not up: start it with `vcdl fleet up {for_shell(file)}`")
    return _bring(fleet, scale_to(None if target == "file" else int(target)), dry_run)


def _bring(fleet: "Fleet", change: "Callable[[FleetState], FleetState]", dry_run: bool) -> ExitCode:
    """Show what a change of a fleet will do, make it, and make passes until no more capacity is available.

    Args:
        fleet: The fleet.
        change: Returns the changed state, such as `vcdl.fleet.run.up`.
        dry_run: Only show what it would do.

    Returns:
        OK, or FLEET if less than the target could be launched.

    Raises:
        VcdlError: The account key is missing, or a pass failed.
    """
    from vcdl.fleet import show
    from vcdl.fleet.run import reach_target
    from vcdl.report.wording import duration

    planned = fleet.controller.preview(change)
    # Show the plan in any case, not only in a dry run, because money is spent from here on.
    say(show.preview(fleet.settings, planned))
    if dry_run:
        return ExitCode.OK
    if planned.actions.launch is not None:
        _check_key(fleet)  # a missing account key shows before anything is changed
    fleet.controller.change(change)
    observed = reach_target(fleet.controller, click.echo)
    click.echo(show.summary(fleet.settings, observed))
    pid = fleet.folder.running_pid()
    if pid is None and observed.wanted:
        lease = duration(fleet.settings.lease_s)
        click.echo(f"instances drain after {lease} unless `vcdl fleet run {for_shell(fleet.file)}` renews their lease")
    if (missing := observed.wanted - observed.have) > 0:
        who = f"process {pid}" if pid is not None else "`vcdl fleet run`"
        click.echo(f"{show.units(missing, fleet.settings.capacity.unit)} short; {who} keeps trying", err=True)
        return ExitCode.FLEET
    return ExitCode.OK


@command.command("drain")
@fleet_file
@click.option("--wait", is_flag=True, help="Wait until all instances have finished and are gone.")
@dry_run_option
def drain_command(file: Path, overrides: tuple[str, ...], wait: bool, dry_run: bool) -> ExitCode:
    """Let instances finish their subtasks, accept no new ones, and end."""
    from vcdl.fleet.run import drain

    fleet = open_fleet(file, overrides)
    code = _bring(fleet, drain, dry_run)
    if dry_run or not any(instance.is_live for instance in fleet.controller.observe().instances):
        return code
    if wait:
        return _loop(fleet)
    click.echo(
        f"instances end once they have finished; end others with `vcdl fleet drain --wait {for_shell(file)}`, or down"
    )
    return code


@command.command("down")
@fleet_file
@click.option("--name", metavar="NAME", help="The fleet's name: no fleet file is needed.")
@click.option("--gcp-project", metavar="ID", help="With --name, for a fleet on GCP.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@dry_run_option
def down_command(
    file: Path, overrides: tuple[str, ...], name: str | None, gcp_project: str | None, yes: bool, dry_run: bool
) -> ExitCode:
    """End everything with the fleet's tag, and check that nothing is left."""
    from vcdl.fleet import show
    from vcdl.fleet.open import Fleet

    fleet = Fleet.to_end(file, overrides, name, gcp_project)
    # The suggested command must work without a fleet file if this one did.
    again = f"--name {name}" + (f" --gcp-project {gcp_project}" if gcp_project else "") if name else for_shell(file)
    say(show.ending(fleet.settings, fleet.provider.look_around().lines()))
    if dry_run:
        return ExitCode.OK
    # A script cannot be asked, and its command line is explicit enough.
    if not yes and is_terminal():
        click.confirm("end it?", abort=True)
    if left := fleet.controller.take_down(lambda error: click.echo(f"not recorded: {error}", err=True)):
        raise FleetError(f"these still exist: {', '.join(left)}; `vcdl fleet down {again}` tries again")
    click.echo("nothing is left")
    return ExitCode.OK


def is_terminal() -> bool:
    """Return whether a user can be asked, because stdin is a terminal."""
    return sys.stdin.isatty()


@command.command("status")
@fleet_file
@json_option
def status_command(file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Show instances, capacity and cost."""
    from vcdl.fleet import show

    fleet = open_fleet(file, overrides)
    observed, pid = fleet.controller.observe(), fleet.folder.running_pid()
    if as_json:
        return say([json.dumps(show.status_json(fleet.settings, observed, pid), indent=2)])
    return say(show.status(fleet.settings, observed, pid))


@command.command("run")
@fleet_file
@click.option("--resume", is_flag=True, help="Leave a fleet down that was taken down, or drained.")
@dry_run_option
def run_command(file: Path, overrides: tuple[str, ...], resume: bool, dry_run: bool) -> ExitCode:
    """Control the fleet: replace lost instances, follow the queue, stop at the budget."""
    from vcdl.fleet import show
    from vcdl.fleet.run import up
    from vcdl.fleet.state import FleetGoal

    fleet = open_fleet(file, overrides)
    if dry_run:
        return say(show.preview(fleet.settings, fleet.controller.preview(up)))
    # After a reboot the unit runs this command, which must not restart a fleet that was taken down.
    if resume and fleet.folder.read().goal is FleetGoal.DOWN:
        return say([f"{fleet.settings.name} is down, and stays so until `vcdl fleet up`"])
    _check_key(fleet)
    return _loop(fleet, None if resume else up)


@command.command("unit")
@fleet_file
def unit_command(file: Path, overrides: tuple[str, ...]) -> ExitCode:
    """Print a systemd unit for `run`, which survives reboots."""
    from vcdl.fleet.run import unit

    click.echo(unit(open_fleet(file, overrides).settings, file, overrides, os.environ), nl=False)
    return ExitCode.OK


@command.command("list")
@fleet_file
def list_command(file: Path, overrides: tuple[str, ...]) -> ExitCode:
    """List everything of all fleets in the account: instances, disks, templates."""
    look = open_fleet(file, overrides).provider.look(every_fleet=True)
    say(look.lines() or ("nothing carries the tag vcdl-fleet",))
    return ExitCode.FLEET if look.away else ExitCode.OK


def _check_key(fleet: "Fleet") -> None:
    """Check that the project accepts the account key, and advise the user to use the weak key.

    Raises:
        FleetError: The key is missing, or the project cannot be reached or does not know it.
    """
    if fleet.weak_key != fleet.settings.project.account_key(os.environ):
        click.echo(
            "the account key is the strong one, which can change the account: instances get the weak key instead; "
            "copy the weak key from the project's web page (Account keys), and use it here, too"
        )


def _loop(fleet: "Fleet", change: "Callable[[FleetState], FleetState] | None" = None) -> ExitCode:
    from vcdl.fleet.run import ControlLoop

    with fleet.folder.running(), _ending() as ending:
        # Change the goal only with the loop's lock: a second `run` that fails must not change the fleet's goal.
        if change is not None:
            fleet.controller.change(change)
        return ControlLoop(fleet.controller, fleet.settings.reconcile_every_s, _log, ending).run()


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and SIGHUP set within the block, so that a pass in progress is completed.

    The previous signal handlers are restored at the end of the block.
    """
    ending = threading.Event()
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    # Handle SIGHUP, too, which a closed terminal sends: a pass that it killed could leave a launch without a record.
    before = [signal.signal(number, lambda _number, _frame: ending.set()) for number in numbers]
    try:
        yield ending
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
