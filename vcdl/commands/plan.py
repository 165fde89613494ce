"""`vcdl plan`: forecast a job's time and cost on some hosts, recommend hosts, and list the unknowns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import (
    PATH,
    job_file_argument,
    json_option,
    pack_options,
    picture_option,
    say,
    say_json,
    seconds,
    set_option,
)
from vcdl.errors import ExitCode, RunFolderError

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.planner.forecast import Choice
    from vcdl.planner.throughput import HostType
    from vcdl.profile.stages import RunProfile
    from vcdl.simulate.client_fleet import ClientFleet
    from vcdl.simulate.host_forecast import HostForecast

_MOST_HOSTS = 100_000
"""Most hosts that are simulated: a limit, so that a typing error does not fill the memory."""
_WORTH = 0.9
"""Fraction of the time below which more shards are recommended, because a smaller gain is within the error of the
speed."""
_EXAMPLES = """\b
Examples:
  vcdl plan job.yaml                           on this machine, measured for a minute
  vcdl plan job.yaml runs/digits               on the hosts of a run, as it measured them
  vcdl plan job.yaml --hosts hosts.yaml
  vcdl plan job.yaml runs/digits --population boinc --clients 100,200,500 --deadline 5d
  vcdl plan job.yaml runs/digits --fleet fleet.yaml --deadline 6h --json > plan.json
  vcdl fleet up fleet.yaml --from-plan plan.json"""


@dataclass(frozen=True)
class PlanOptions:
    """The hosts to plan with, and the limits that the plan must keep.

    At most one of `fleet`, `hosts` and `population` is set; without any, the hosts of the measured run are used.
    """

    fleet: Path | None = None
    hosts: Path | None = None
    population: str | None = None
    clients: tuple[int, ...] = ()
    deadline_s: float | None = None
    budget_usd: float | None = None
    accuracy: float | None = None

    @property
    def words(self) -> str:
        """Deadline and budget as text, or an empty string without either."""
        from vcdl.report.wording import duration

        parts = [duration(self.deadline_s)] if self.deadline_s is not None else []
        return " and ".join([*parts, *([f"{self.budget_usd:g} $"] if self.budget_usd is not None else [])])


def plan(
    job: "Job", run: Path | None, options: PlanOptions, picture: Path | None = None, as_json: bool = False
) -> ExitCode:
    """Forecast a job's time and cost on each choice of hosts, and print the forecasts and the recommended choice.

    The measured speed of `run` is used; if it is None, some subtasks are measured on this machine first. The choices
    are also drawn into the file `picture`, unless that is None.

    Returns:
        OK, or RUN_FAILED if no choice keeps the limits.

    Raises:
        VcdlError: The plan cannot be made.
    """
    from vcdl.planner.forecast import MODEL_ERROR, forecast, recommend
    from vcdl.profile.measured_hosts import measured_servers, measured_types
    from vcdl.profile.planned_job import cut_work, planned_epochs, work_of_job
    from vcdl.report.planned import draw_plan, plan_json, plan_lines

    unknown: list[str] = []
    choices_of = _choices(job, options, unknown)  # before the measurement, so that a wrong file is reported at once
    measured, measured_job = _profile_for_plan(job, run, unknown)
    epochs = planned_epochs(job, measured, options.accuracy, unknown)
    work = work_of_job(job, measured, measured_job, epochs)
    if options.hosts is not None:
        work = replace(work, error=MODEL_ERROR)  # how much the measured hosts vary says nothing about other hosts
    servers = measured_servers(measured, job.grid.servers)
    forecasts = []
    for choice in choices_of(tuple(measured_types(measured))):
        size = cut_work(work, choice.shards) if choice.shards else work
        forecasts.append(forecast(size, choice, servers, options.deadline_s))
    chosen = recommend(forecasts, options.deadline_s, options.budget_usd)
    if as_json:
        say_json(plan_json(chosen, forecasts, unknown))
    else:
        say(plan_lines(chosen, forecasts, unknown, options.words, options.deadline_s))
    if picture is not None:
        draw_plan(chosen, forecasts, picture)
    return ExitCode.OK if chosen.chosen is not None else ExitCode.RUN_FAILED


def plan_population(job: "Job", run: Path | None, options: PlanOptions, as_json: bool = False) -> ExitCode:
    """Simulate a job on hosts of a population, for each requested number of hosts, and print how long it takes.

    With a deadline it also finds the fewest hosts that meet it. The measured speed of `run` is used; if it is None,
    some subtasks are measured on this machine first.

    Raises:
        VcdlError: The plan cannot be made.
    """
    from vcdl.planner.forecast import MODEL_ERROR
    from vcdl.profile.measured_hosts import mean_slot_s, measured_servers, measured_types
    from vcdl.profile.planned_job import planned_epochs, work_of_job
    from vcdl.simulate.host_forecast import RUNS, HostForecast, JobOnHosts, fewest_hosts

    _fleet_of(options, 1.0)  # check the population before anything is measured
    unknown = [] if run else ["how fast these hosts are: on average as fast as this machine, until a run is named"]
    unknown.append("how many subtasks a host trains at a time: one, so count a host with two slots twice")
    measured, measured_job = _profile_for_plan(job, run, unknown)
    epochs = planned_epochs(job, measured, options.accuracy, unknown)
    work, servers = work_of_job(job, measured, measured_job, epochs), measured_servers(measured, job.grid.servers)
    types, samples = measured_types(measured), work.subtask.samples
    subtask_s = mean_slot_s(types, samples)
    if subtask_s == 0:
        raise RunFolderError(
            "no host of this run has reported a training time: omit RUN, and some subtasks are measured here"
        )
    settings = f"servers={servers.count}", f"update_s={servers.fold_s!r}"
    simulated = JobOnHosts(
        job.model_copy(update={"stop": job.stop.model_copy(update={"epochs": epochs})}),
        _fleet_of(options, subtask_s, *settings),
        work.error if run else MODEL_ERROR,
        work.end_s,
        round(work.subtask.bytes_down),
        round(work.subtask.bytes_up),
    )

    def on(clients: int) -> HostForecast:
        click.echo(f"simulating {clients} hosts, {RUNS} times …", err=True)
        return simulated.on(clients)

    forecasts, deadline_s = [on(clients) for clients in options.clients], options.deadline_s
    best = None if deadline_s is None else fewest_hosts(on, forecasts, deadline_s)
    # `fewest_hosts` also tries numbers between the requested ones.
    if best is not None and best not in forecasts:
        forecasts = sorted([*forecasts, best], key=lambda one: one.clients)
    chosen, shards, finer = best or forecasts[-1], 2 * job.data.shards, None
    # Try twice as many shards only if that can help, because there are so few per host that many hosts wait at the end
    # of an epoch, and only if half a shard still contains two batches.
    if shards < 4 * chosen.clients and samples >= 2 * job.training.local_epochs * job.training.batch_size:
        click.echo(f"simulating them with {shards} shards …", err=True)
        halved = simulated.cut(shards, mean_slot_s(types, samples / 2)).on(chosen.clients)
        finer = halved if halved.wall_s.median < _WORTH * chosen.wall_s.median else None
    if finer is not None:
        unknown.append(f"what {shards} shards do to the accuracy")
    if as_json:
        say_json(
            {
                "population": options.population,
                "subtask_s": round(subtask_s, 3),
                "runs": RUNS,
                "forecasts": [one.as_dict(deadline_s) for one in forecasts],
                "recommended": None if best is None else best.clients,
                "finer": None if finer is None else {"shards": shards, **finer.as_dict(deadline_s)},
                "not_known": unknown,
            }
        )
    else:
        lines = [_verdict(best, options.words)] if deadline_s is not None else []
        lines += [one.words(deadline_s) for one in forecasts]
        if finer is not None:
            lines.append(f"with data > shards: {shards} instead of {job.data.shards}, {finer.words(deadline_s)}")
        say([*lines, *(f"not known: {one}" for one in unknown)])
    return ExitCode.OK if deadline_s is None or best is not None else ExitCode.RUN_FAILED


def _verdict(best: "HostForecast | None", within: str) -> str:
    """Return the sentence about the fewest hosts that keep the limit `within`, or about None of them."""
    from vcdl.planner.spot_market import HELD
    from vcdl.simulate.host_forecast import range_words

    if best is None:
        return (
            f"none of these numbers of hosts stays within {within} in {HELD:.0%} of its runs: try more hosts, or fewer "
            "epochs"
        )
    kept = f"{best.clients} hosts are the fewest here that keep {within} in {HELD:.0%} of the runs"
    return f"{kept}: {range_words(best.wall_s)}."


def _fleet_of(options: PlanOptions, subtask_s: float, *settings: str) -> "ClientFleet":
    """Return the simulated clients of a population, on which a subtask takes `subtask_s` seconds on average.

    Further settings of the simulation are given as KEY=VALUE.

    Raises:
        JobError: The population is unknown or invalid.
    """
    from vcdl.commands.simulate import ClientOptions

    given = (f"subtask_s={subtask_s!r}", *settings)
    return ClientOptions(population=options.population, slots=1, settings=given).fleet()


def _profile_for_plan(job: "Job", run: Path | None, unknown: list[str]) -> "tuple[RunProfile, Job]":
    """Return the measured times to plan with, and the settings with which they were measured.

    Args:
        job: The job to plan.
        run: The run that was measured, or None to measure some subtasks of the job here, which takes a minute.
        unknown: What the plan does not know; a different batch size is appended.

    Raises:
        RunFolderError: The run has trained another model or other data.
    """
    from vcdl.profile.measure import profile_here
    from vcdl.profile.planned_job import profile_of_run

    if run is None:
        click.echo("measuring some subtasks here …", err=True)
        return profile_here(job), job
    return profile_of_run(job, run, unknown)


def _choices(
    job: "Job", options: PlanOptions, unknown: list[str]
) -> "Callable[[tuple[HostType, ...]], Sequence[Choice]]":
    """Read the fleet file or the file of hosts, and return a function that lists the choices to forecast.

    Without such a file the choices are the measured hosts with different numbers of shards. Caveats about a fleet are
    appended to `unknown`.

    Returns:
        A function of the measured hosts.

    Raises:
        VcdlError: A file is invalid, or offers no choice.
    """
    from vcdl.planner.forecast import Choice
    from vcdl.profile.hosts_file import load_hosts

    if options.fleet is not None:
        from vcdl.commands._options import open_fleet
        from vcdl.fleet.choices import fleet_choices, pools_of_table
        from vcdl.fleet.prices import PriceTable
        from vcdl.planner.throughput import HostType

        settings, prices = open_fleet(options.fleet, ()).settings, PriceTable.current()
        pools = pools_of_table(settings, prices)
        unknown += fleet_choices(settings, pools, prices, HostType("slot", 1, 1.0, 0.0)).checked_notes(settings)
        unknown.append(
            "the speed of these types: a slot counts as fast as the measured one, until a run on them is named"
        )
        return lambda types: fleet_choices(settings, pools, prices, types[0]).choices
    listed = load_hosts(options.hosts).choice() if options.hosts is not None else None

    def several(types: "tuple[HostType, ...]") -> list[Choice]:
        base = listed or Choice(f"{sum(round(one.count * one.slots) for one in types)} measured slots", types)
        shards, slots = job.data.shards, sum(one.count * one.slots for one in base.hosts)
        # Do not use fewer shards than slots, because some hosts would have no work.
        counts = sorted({shards, *(size for size in (shards // 4, shards // 2, 2 * shards) if size >= slots)})
        return [replace(base, name=f"{base.name}, {count} shards", shards=count) for count in counts]

    return several


def _counts(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Parse the value of an option such as `100,200`, and return the numbers sorted, each once.

    Raises:
        BadParameter: A part of the value is not a number of hosts.
    """
    parts = [] if value is None else value.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) <= _MOST_HOSTS for part in parts):
        raise click.BadParameter(
            f"{value!r} is not a list of numbers of hosts, such as 100,200,500 (at most {_MOST_HOSTS})"
        )
    return tuple(sorted({int(part) for part in parts}))


@click.command("plan", cls=ServedCommand, epilog=_EXAMPLES)
@job_file_argument
@click.argument("run", metavar="[RUN]", required=False, type=PATH)
@click.option("--fleet", metavar="FLEET.yaml", type=PATH, help="Plan with this fleet.")
@click.option("--hosts", metavar="HOSTS.yaml", type=PATH, help="Plan with these hosts.")
@click.option("--population", metavar="NAME|FILE", help="Plan with such hosts: boinc, spot, lab, or a file.")
@click.option("--clients", metavar="N,N", callback=_counts, help="Numbers of hosts of the population to try.")
@click.option("--deadline", "deadline_s", metavar="TIME", callback=seconds, help="Time it may take: 6h, 90min.")
@click.option("--budget-usd", type=click.FloatRange(0, min_open=True), metavar="USD", help="Money that it may cost.")
@click.option("--accuracy", type=click.FloatRange(0, 1), help="Plan the epochs that this needs, by RUN's curve.")
@picture_option
@set_option
@json_option
@pack_options(PlanOptions, "options")
def command(
    job_file: Path,
    run: Path | None,
    output: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
    options: PlanOptions,
) -> ExitCode:
    """Show what a job will take and cost, and which hosts to take."""
    from vcdl.job import SMALL_FLEET, load_job

    if sum(one is not None for one in (options.fleet, options.hosts, options.population)) > 1:
        raise click.UsageError("--fleet, --hosts and --population exclude each other: choose one")
    if (options.population is None) is bool(options.clients):
        raise click.UsageError("--population and --clients go together: --population boinc --clients 100,200,500")
    if options.population is None:
        return plan(load_job(job_file, overrides, SMALL_FLEET), run, options, output, as_json)
    if output is not None or options.budget_usd is not None:
        raise click.UsageError("with --population there is no picture and no cost: remove -o and --budget-usd")
    return plan_population(load_job(job_file, overrides, max(options.clients)), run, options, as_json)
