"""`vcdl fleet plan`, `cost` and `prices`: the expected cost of a fleet, its cost so far, and the prices in use."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import click

from vcdl.commands._options import PATH, dry_run_option, fleet_file, json_option, open_fleet, project_dir_option, say
from vcdl.errors import ExitCode, FleetError


@click.command("plan")
@fleet_file
@click.option("--units", type=click.IntRange(1), metavar="N", help="Replaces the file's target.")
@click.option("--offline", is_flag=True, help="Do not ask the cloud; use the types in the price table.")
def plan_command(file: Path, overrides: tuple[str, ...], units: int | None, offline: bool) -> ExitCode:
    """Show what the fleet costs an hour, by type and place; launches nothing. `vcdl plan --fleet` plans a job."""
    from vcdl.fleet import show
    from vcdl.fleet.choices import fleet_choices, pools_of_table
    from vcdl.fleet.prices import PriceTable
    from vcdl.planner.throughput import HostType

    fleet, prices = open_fleet(file, overrides), PriceTable.current()
    types = pools_of_table(fleet.settings, prices) if offline else fleet.provider.pools()
    wanted = units or fleet.settings.capacity.target
    # Pass a speed of 0: this command compares only prices, so the time of a subtask does not matter.
    offered = fleet_choices(fleet.settings, types, prices, HostType("slot", 1, 0.0, 0.0), [wanted])
    return say(show.plan(fleet.settings, offered, wanted))


@click.command("cost")
@fleet_file
@click.option(
    "--run", "run_dirs", metavar="DIR", multiple=True, type=PATH,
    help="A run that the fleet works for, to show the cost of a subtask; may be repeated.",
)  # fmt: skip
@project_dir_option("The BOINC project, to see which subtasks a preempted instance still finished.")
@json_option
def cost_command(
    file: Path, overrides: tuple[str, ...], run_dirs: tuple[Path, ...], project_dir: Path | None, as_json: bool
) -> ExitCode:
    """Show the fleet's cost so far, what it saved, what it bought, and what was wasted."""
    from vcdl.fleet.cost import SPENDING_EVENTS, cost_of, epoch_costs, parts_usd, spending_lines
    from vcdl.fleet.ledger import Ledger
    from vcdl.fleet.project import ProjectDatabase, instances_of_hosts
    from vcdl.journal.journal import Journal
    from vcdl.run.folder import RunFolder
    from vcdl.run.reading import read_report

    fleet = open_fleet(file, overrides)
    try:
        # Ask the cloud first, so that instances that ended since the last pass do not count as live.
        fleet.controller.record()
    # Continue if the cloud cannot be asked, for example because credentials have expired: an older cost is better than
    # none.
    except FleetError as error:
        click.echo(f"the cloud could not be asked, so these figures are of the last pass: {error}", err=True)
    journals = []
    for run_dir in run_dirs:
        journal = Journal.read_only(RunFolder.existing(run_dir).journal_file)
        journals.append(list(journal.stream(kinds=SPENDING_EVENTS)))
        journal.close()
    ledger = Ledger(fleet.folder.ledger_file)
    hosts = ProjectDatabase(project_dir).hosts() if project_dir is not None else []
    now_s, of_host = fleet.controller.now_s(), instances_of_hosts(hosts, ledger.history().launched)
    cost, parts = cost_of(ledger, now_s, journals, of_host), parts_usd(ledger, now_s, journals, of_host)
    report = read_report(RunFolder(run_dirs[0])) if run_dirs else None
    measure = report.monitor.name if report is not None else ""
    # Use the first run: several runs have no common epochs.
    epochs = epoch_costs(ledger, journals[0], report.epochs) if report is not None else []
    if as_json:
        more = {"parts_usd": parts, "epochs": [vars(one) for one in epochs]}
        return say([json.dumps({**cost.as_dict(), **more}, indent=2)])
    return say((*cost.lines(), *(spending_lines(measure, epochs, parts) if run_dirs else ())))


@click.command("prices")
@fleet_file
@click.option("--refresh", is_flag=True, help="Fetch today's prices of the fleet's types from its cloud.")
@dry_run_option
def prices_command(file: Path, overrides: tuple[str, ...], refresh: bool, dry_run: bool) -> ExitCode:
    """Show the prices in use, and where they are from."""
    from vcdl.fleet import show
    from vcdl.fleet.choices import pools_of_table
    from vcdl.fleet.open import open_price_source
    from vcdl.fleet.prices import PriceTable, refresh_prices, refreshed_file

    fleet = open_fleet(file, overrides)
    regions = fleet.settings.regions
    if refresh:
        source = open_price_source(fleet.settings.cloud, os.environ)
        types = sorted({kind.name: kind for kind in fleet.provider.pools().values()}.items())
        if dry_run:
            asked = f"{', '.join(name for name, _ in types)} in {', '.join(regions)}"
            return say([f"ask {source.name} for {asked}; write {refreshed_file()}"])
        now = datetime.fromtimestamp(fleet.controller.now_s(), UTC)  # by which passes tell how old a price is
        say(refresh_prices(source, [kind for _, kind in types], regions, refreshed_file(), now))
    prices = PriceTable.current()
    return say(show.prices(pools_of_table(fleet.settings, prices), prices))
