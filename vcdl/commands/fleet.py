"""`vcdl fleet`: preemptible instances that are a BOINC project's clients: begin, watch, change and end a fleet, and count its money."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands.fleet_money import cost_command, plan_command, prices_command
from vcdl.commands.fleet_options import dry_run_option, fleet_file, json_option, opened
from vcdl.errors import ExitCode, FleetError, JobError

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet
    from vcdl.fleet.state import FleetState

_EXAMPLES = """\b
Examples:
  vcdl fleet plan --run runs/cifar     what it would cost; launches nothing
  vcdl fleet up                        launch up to the target, once
  vcdl fleet run --daemon              and from now on replace what is lost
  vcdl fleet status
  vcdl fleet scale 80                  another target; `scale file`: the file's
  vcdl fleet drain --wait              finish what runs, then end all
  vcdl fleet down                      end all now, and prove that nothing is left
  vcdl fleet cost

All of the file fleet.yaml in the current folder unless FILE is given."""


@click.group("fleet", epilog=_EXAMPLES)
def command() -> None:
    """Keep preemptible instances as a project's clients."""


for _about_money in (plan_command, cost_command, prices_command):
    command.add_command(_about_money)


@command.command("up")
@fleet_file
@dry_run_option
def up_command(file: Path, overrides: tuple[str, ...], dry_run: bool) -> ExitCode:
    """Launch what is missing of the target, once."""
    from vcdl.fleet.run import up

    return _bring(opened(file, overrides), up, dry_run)


@command.command("scale")
@click.argument("target", metavar="N")
@fleet_file
@dry_run_option
def scale_command(target: str, file: Path, overrides: tuple[str, ...], dry_run: bool) -> ExitCode:
    """Another target, in units; `file`: the file's own, or the queue's."""
    from vcdl.fleet.run import scaled
    from vcdl.fleet.state import Goal

    fleet = opened(file, overrides)
    limit = fleet.settings.capacity.limit
    if target != "file" and not (target.isdecimal() and int(target) <= limit):
        raise JobError(f"scale {target}: expected a whole number from 0 to {limit} (capacity > max), or the word file")
    if fleet.folder.read().goal is not Goal.UP:
        raise FleetError(f"{fleet.settings.name} is not up: `vcdl fleet up {file}` begins it")
    return _bring(fleet, scaled(None if target == "file" else int(target)), dry_run)


def _bring(fleet: "Fleet", change: "Callable[[FleetState], FleetState]", dry_run: bool) -> ExitCode:
    """Show what a change means, make it, and pass until there is no more to be had."""
    from vcdl.fleet import show
    from vcdl.fleet.run import bring_about

    preview = fleet.keeper.preview(change)
    for line in show.planned(fleet.settings, preview):
        click.echo(line)
    if dry_run:
        return ExitCode.OK
    if preview.plan.launch is not None:
        fleet.user_data()  # an account key that is missing shows before anything is changed
    fleet.keeper.change(change)
    look = bring_about(fleet.keeper, click.echo)
    click.echo(show.summary(fleet.settings, look))
    pid = fleet.folder.running_pid()
    if pid is None and look.wanted:
        click.echo(f"nobody replaces what is lost: `vcdl fleet run {fleet.file} --daemon`")
    if look.have < look.wanted:
        goes_on = f"process {pid} goes on trying" if pid is not None else "`vcdl fleet run` goes on trying"
        click.echo(f"{show.units(look.wanted - look.have, fleet.settings.capacity.unit)} short; {goes_on}", err=True)
        return ExitCode.FLEET
    return ExitCode.OK


@command.command("drain")
@fleet_file
@click.option("--wait", is_flag=True, help="Until all have finished and are gone.")
@dry_run_option
def drain_command(file: Path, overrides: tuple[str, ...], wait: bool, dry_run: bool) -> ExitCode:
    """Let instances finish their subtasks, take nothing new, and go."""
    from vcdl.fleet.run import drained

    fleet = opened(file, overrides)
    code = _bring(fleet, drained, dry_run)
    if dry_run or not any(instance.is_live for instance in fleet.keeper.look().instances):
        return code
    if wait:
        return _loop(fleet)
    click.echo(f"they go once they have finished; what then still runs: `vcdl fleet drain --wait {file}`, or down")
    return code


@command.command("down")
@fleet_file
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@dry_run_option
def down_command(file: Path, overrides: tuple[str, ...], yes: bool, dry_run: bool) -> ExitCode:
    """End all that carries the fleet's tag, and prove that nothing is left."""
    from vcdl.fleet import show

    fleet = opened(file, overrides)
    for line in show.ending(fleet.settings, fleet.provider.leftovers()):
        click.echo(line)
    if dry_run:
        return ExitCode.OK
    if not yes and is_terminal():
        click.confirm("end it?", abort=True)
    taken = fleet.keeper.take_down()
    for trouble in taken.trouble:
        click.echo(f"not written down: {trouble}", err=True)
    if taken.left:
        raise FleetError(f"still there: {', '.join(taken.left)}; `vcdl fleet down {file}` tries again")
    click.echo("nothing is left")
    return ExitCode.OK


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


@command.command("status")
@fleet_file
@json_option
def status_command(file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Show the instances, the capacity and the price."""
    from vcdl.fleet import show

    fleet = opened(file, overrides)
    look, pid = fleet.keeper.look(), fleet.folder.running_pid()
    if as_json:
        click.echo(json.dumps(show.status_json(fleet.settings, look, pid), indent=2))
    else:
        for line in show.status(fleet.settings, look, pid):
            click.echo(line)
    return ExitCode.OK


@command.command("run")
@fleet_file
@click.option("--daemon", is_flag=True, help="In a process of its own, which outlives this terminal.")
@dry_run_option
def run_command(file: Path, overrides: tuple[str, ...], daemon: bool, dry_run: bool) -> ExitCode:
    """Keep the fleet: replace what is lost, follow the queue, mind the budget."""
    from vcdl.fleet import show
    from vcdl.fleet.daemon import start_daemon
    from vcdl.fleet.run import up

    fleet = opened(file, overrides)
    if dry_run:
        for line in show.planned(fleet.settings, fleet.keeper.preview(up)):
            click.echo(line)
        return ExitCode.OK
    fleet.user_data()
    if daemon:
        pid = start_daemon(file, overrides, fleet.folder)
        click.echo(f"process {pid} keeps {fleet.settings.name}; it writes to {fleet.folder.log_file}")
        return ExitCode.OK
    return _loop(fleet, up)


def _loop(fleet: "Fleet", change: "Callable[[FleetState], FleetState] | None" = None) -> ExitCode:
    from vcdl.fleet.run import Loop

    fleet.folder.create()
    with fleet.folder.running(), _ending() as ending:
        if change is not None:
            fleet.keeper.change(change)
        return Loop(fleet.keeper, fleet.settings.look_every_s, _log, ending).run()


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """Set by Ctrl-C, SIGTERM and SIGHUP: the running pass is then the last."""
    ending = threading.Event()
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda _number, _frame: ending.set()) for number in numbers]
    try:
        yield ending
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
