"""`vcdl fleet`: preemptible instances that are a BOINC project's clients: begin, watch, change and end a fleet, and count its money."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vcdl.errors import ExitCode, FleetError, JobError

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet
    from vcdl.fleet.state import FleetState

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLES = """\b
Examples, all of the file fleet.yaml in the current folder unless FILE is given:
  vcdl fleet plan --run runs/cifar     what it would cost; launches nothing
  vcdl fleet up                        launch up to the target, once
  vcdl fleet run --daemon              and from now on replace what is lost
  vcdl fleet status
  vcdl fleet scale 80                  another target; `scale file`: the file's
  vcdl fleet drain --wait              finish what runs, then end all
  vcdl fleet down                      end all now, and prove that nothing is left
  vcdl fleet cost"""


def _file(function: F) -> F:
    return click.argument(
        "file", metavar="[FILE]", default=Path("fleet.yaml"), type=click.Path(path_type=Path, dir_okay=False)
    )(_overrides(function))


def _overrides(function: F) -> F:
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Replace a key of the file, such as capacity.target=8.",
    )(function)


_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group("fleet", epilog=_EXAMPLES)
def command() -> None:
    """Keep preemptible instances on AWS or GCP as clients of a BOINC project."""


def _opened(file: Path, overrides: Sequence[str]) -> "Fleet":
    from vcdl.fleet.open import Fleet

    return Fleet.of_file(file, overrides)


@command.command("up")
@_file
@_dry_run
def up_command(file: Path, overrides: tuple[str, ...], dry_run: bool) -> ExitCode:
    """Launch what is missing of the target, once."""
    from vcdl.fleet.run import up

    return _bring(_opened(file, overrides), up, dry_run)


@command.command("scale")
@click.argument("target", metavar="N")
@_file
@_dry_run
def scale_command(target: str, file: Path, overrides: tuple[str, ...], dry_run: bool) -> ExitCode:
    """Another target, in units; `file`: the file's own, or the queue's."""
    from vcdl.fleet.run import scaled
    from vcdl.fleet.state import Goal

    fleet = _opened(file, overrides)
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
@_file
@click.option("--wait", is_flag=True, help="Until all have finished and are gone.")
@_dry_run
def drain_command(file: Path, overrides: tuple[str, ...], wait: bool, dry_run: bool) -> ExitCode:
    """Let instances finish their subtasks, take nothing new, and go."""
    from vcdl.fleet.run import drained

    fleet = _opened(file, overrides)
    code = _bring(fleet, drained, dry_run)
    if dry_run or not any(instance.is_live for instance in fleet.keeper.look().instances):
        return code
    if wait:
        return _loop(fleet)
    click.echo(f"they go once they have finished; what then still runs: `vcdl fleet drain --wait {file}`, or down")
    return code


@command.command("down")
@_file
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@_dry_run
def down_command(file: Path, overrides: tuple[str, ...], yes: bool, dry_run: bool) -> ExitCode:
    """End all that carries the fleet's tag, and prove that nothing is left."""
    from vcdl.fleet import show

    fleet = _opened(file, overrides)
    for line in show.ending(fleet.settings, fleet.provider.leftovers()):
        click.echo(line)
    if dry_run:
        return ExitCode.OK
    if not yes and sys.stdin.isatty():
        click.confirm("end it?", abort=True)
    taken = fleet.keeper.take_down()
    for trouble in taken.trouble:
        click.echo(f"not written down: {trouble}", err=True)
    if taken.left:
        raise FleetError(f"still there: {', '.join(taken.left)}; `vcdl fleet down {file}` tries again")
    click.echo("nothing is left")
    return ExitCode.OK


@command.command("status")
@_file
@_json
def status_command(file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Show the instances, the capacity and the price."""
    from vcdl.fleet import show

    fleet = _opened(file, overrides)
    look, pid = fleet.keeper.look(), fleet.folder.running_pid()
    if as_json:
        click.echo(json.dumps(show.status_json(fleet.settings, look, pid), indent=2))
    else:
        for line in show.status(fleet.settings, look, pid):
            click.echo(line)
    return ExitCode.OK


@command.command("run")
@_file
@click.option("--daemon", is_flag=True, help="In a process of its own, which outlives this terminal.")
@_dry_run
def run_command(file: Path, overrides: tuple[str, ...], daemon: bool, dry_run: bool) -> ExitCode:
    """Keep the fleet: replace what is lost, follow the queue, mind the budget."""
    from vcdl.fleet import show
    from vcdl.fleet.daemon import start_daemon
    from vcdl.fleet.run import up

    fleet = _opened(file, overrides)
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

    ending = threading.Event()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ending.set())
    fleet.folder.create()
    with fleet.folder.running():
        if change is not None:
            fleet.keeper.change(change)
        return Loop(fleet.keeper, fleet.settings.look_every_s, _log, ending).run()


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")


@command.command("plan")
@_file
@click.option("--units", type=click.IntRange(1), metavar="N", help="In place of the file's target.")
@click.option(
    "--run", "run_dir", metavar="DIR", type=click.Path(path_type=Path), help="A run whose subtasks are counted with."
)
@click.option("--subtask-s", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="In place of --run.")
@click.option("--offline", is_flag=True, help="Ask no cloud: the types that the price table knows.")
def plan_command(
    file: Path,
    overrides: tuple[str, ...],
    units: int | None,
    run_dir: Path | None,
    subtask_s: float | None,
    offline: bool,
) -> ExitCode:
    """What the fleet would cost an hour, and per 10 000 subtasks; launches nothing."""
    from vcdl.fleet import show
    from vcdl.fleet.plan import measured_subtask_s, plan_fleet, pools_of_table
    from vcdl.fleet.prices import PriceTable
    from vcdl.run_folder import RunFolder

    fleet = _opened(file, overrides)
    prices = PriceTable.current()
    if run_dir is not None:
        subtask_s = measured_subtask_s(RunFolder.existing(run_dir))
    types = pools_of_table(fleet.settings, prices) if offline else fleet.provider.pools()
    wanted = units or fleet.settings.capacity.target
    for line in show.plan(fleet.settings, plan_fleet(fleet.settings, types, prices, wanted), wanted, subtask_s):
        click.echo(line)
    return ExitCode.OK


@command.command("cost")
@_file
@click.option(
    "--run", "run_dirs", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
    help="A run that the fleet works for: also tells the cost of a subtask; may be repeated.",
)  # fmt: skip
@_json
def cost_command(file: Path, overrides: tuple[str, ...], run_dirs: tuple[Path, ...], as_json: bool) -> ExitCode:
    """What the fleet has cost, what it saved, and what preemption wasted."""
    from vcdl.fleet.cost import cost_of
    from vcdl.fleet.ledger import Ledger
    from vcdl.journal import Journal
    from vcdl.run_folder import RunFolder

    fleet = _opened(file, overrides)
    try:
        fleet.keeper.note()
    except FleetError as error:
        click.echo(f"the cloud was not asked, so this is what was known at the last pass: {error}", err=True)
    journals = []
    for run_dir in run_dirs:
        journal = Journal.read_only(RunFolder.existing(run_dir).journal_file)
        journals.append(journal.read())
        journal.close()
    cost = cost_of(Ledger(fleet.folder.ledger_file), time.time(), journals)
    if as_json:
        click.echo(json.dumps(cost.as_dict(), indent=2))
    else:
        for line in cost.lines():
            click.echo(line)
    return ExitCode.OK
