"""`vcdl simulate`: a job on simulated clients, in virtual time."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import PATH, job_file_argument, pack_options, say, say_json, set_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.report.measures import Report
    from vcdl.simulate.client_fleet import ClientFleet

_EXAMPLES = """\b
Examples:
  vcdl simulate job.yaml --clients 10 --slots 2
  vcdl simulate job.yaml --clients-file clients.yaml --with lost=0.3 --with speed_ratio=4
  vcdl simulate job.yaml --clients 10000 --training none
  vcdl simulate job.yaml --clients 200 --population boinc --training none

Trains for real on this machine's cores; times are those of the simulated clients. The same
settings give the same run, bit for bit. docs/simulate.md lists the keys of a clients file."""


_AS_VOLUNTEERS = ("second_copies=true", "timeout_s=86400", "checkpoint_every_s=60")
"""Settings for a population unless --with changes them, because hosts that sleep at night finish in the morning: a late
subtask goes to a second host, as on a BOINC server, and the client's checkpoint is a minute old at most."""


@dataclass(frozen=True)
class ClientOptions:
    """The options of a command that define its simulated clients."""

    clients_file: Path | None = None
    settings: tuple[str, ...] = ()
    clients: int | None = None
    slots: int | None = None
    population: str | None = None

    def fleet(self) -> "ClientFleet":
        """Read the clients file, if there is one, and return the simulated clients with the options applied.

        Raises:
            JobError: The clients file, the population or an option is invalid.
        """
        from vcdl.simulate.client_fleet import load_clients

        counts = {"clients": self.clients, "slots": self.slots}
        # Pass only options that were given: the defaults of others would replace values of the clients file.
        given = [f"{key}={count}" for key, count in counts.items() if count is not None]
        if self.population is not None:
            # Before the user's own settings, which replace them.
            given += [f"population={json.dumps(self.population)}", *_AS_VOLUNTEERS]
        return load_clients(self.clients_file, [*given, *self.settings])


def simulate_times(job: "Job", fleet: "ClientFleet", out: Path | None = None, as_json: bool = False) -> ExitCode:
    """Simulate when which client computes which subtask of a job, without training, and print the times.

    Args:
        job: The job.
        fleet: The simulated clients.
        out: The run's folder, or None for a default one.
        as_json: Print JSON.

    Raises:
        VcdlError: The job cannot be simulated.
    """
    from vcdl.journal.observer import RunObserver
    from vcdl.report.outcome import end_reason
    from vcdl.report.wording import duration, plural
    from vcdl.run.finding import display_path
    from vcdl.run.folder import RunFolder
    from vcdl.simulate.simulation import default_folder
    from vcdl.simulate.simulation import simulate_times as run

    folder = default_folder(f"{job.name}-times") if out is None else RunFolder(out.resolve())
    begun_s = time.monotonic()
    report = run(folder, job, fleet, RunObserver())
    if report is None:
        click.echo(f"stopped; the same command starts {display_path(folder.path)} again", err=True)
        return ExitCode.INTERRUPTED
    if as_json:
        say_json(report.as_dict())
    else:
        took = duration(time.monotonic() - begun_s)
        click.echo(
            f"finished after {plural(report.epochs, 'epoch')} and {duration(report.wall_s)} of virtual time: "
            f"{end_reason(report.stop_reason, job.monitor.name)}; simulated in {took}, without training"
        )
        say([*report.lines(), f"{'results':<20} {display_path(folder.path)}"])
    return ExitCode.RUN_FAILED if report.is_given_up else ExitCode.OK


def simulate(job: "Job", fleet: "ClientFleet", out: Path | None = None, as_json: bool = False) -> ExitCode:
    """Train a job on simulated clients, in virtual time, to its end or Ctrl-C, and print its results.

    Args:
        job: The job.
        fleet: The simulated clients.
        out: The run's folder, or None for a default one.
        as_json: Print the summary as JSON.

    Raises:
        VcdlError: The job cannot be simulated, or a shard kept failing.
    """
    from vcdl.job import load_frozen_job
    from vcdl.report.display import PlainLines
    from vcdl.report.progress import RunGoal
    from vcdl.report.summary import summary_of
    from vcdl.run.driver import failed_shard_error
    from vcdl.run.finding import display_path
    from vcdl.run.folder import RunFolder
    from vcdl.simulate.simulation import default_folder
    from vcdl.simulate.simulation import simulate as run

    folder = default_folder(f"{job.name}-simulated") if out is None else RunFolder(out.resolve())
    stream = sys.stderr if as_json else sys.stdout
    # The journal's clock starts at 0. Do not show setbacks: the clients are meant to have many.
    observer = PlainLines(RunGoal.of(job), stream, clock=lambda: 0.0, shows_setbacks=False)
    begun_s = time.monotonic()
    report = run(folder, job, fleet, observer)
    if report is None:
        click.echo(f"stopped; the same command starts {display_path(folder.path)} again", err=True)
        return ExitCode.INTERRUPTED
    if as_json:
        say_json(summary_of(job.name, report))
    else:
        say([*_results(report, time.monotonic() - begun_s), f"{'results':<20} {display_path(folder.path)}"])
    if report.is_given_up:
        raise failed_shard_error(folder, load_frozen_job(folder.job_file), report)  # it says whom the run trusts
    return ExitCode.OK


def _results(report: "Report", real_s: float) -> list[str]:
    from vcdl.report.outcome import outcome_lines
    from vcdl.report.wording import duration

    first, *rest = outcome_lines(report, "virtual time")
    return [f"{first}; simulated in {duration(real_s)}", *rest]


@click.command("simulate", epilog=_EXAMPLES)
@job_file_argument
@click.option("--clients-file", metavar="CLIENTS.yaml", type=PATH, help="The simulated clients' settings.")
@click.option("--clients", type=click.IntRange(1), help="Number of clients [default: 10].")
@click.option("--slots", type=click.IntRange(1), help="Subtasks that a client runs at a time [default: 2].")
@click.option(
    "--population", metavar="NAME|FILE", help="Hosts as they are: boinc, spot, lab, a YAML file, or a trace of counts."
)
@click.option(
    "--with", "settings", metavar="KEY=VALUE", multiple=True, help="Replace a key of the clients file; repeatable."
)
@set_option
@click.option(
    "--training",
    type=click.Choice(["real", "none"]),
    default="real",
    show_default=True,
    help="none: only times, losses, staleness, waiting and cost; no weights.",
)
@click.option("--out", metavar="DIR", type=PATH, help="The run's folder [default: runs/NAME-simulated].")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json at the end; progress is shown on stderr.")
@pack_options(ClientOptions, "clients")
def command(
    job_file: Path, overrides: tuple[str, ...], training: str, out: Path | None, as_json: bool, clients: ClientOptions
) -> ExitCode:
    """Train a job on simulated clients, in virtual time."""
    from vcdl.job import load_job

    fleet = clients.fleet()
    job = load_job(job_file, overrides, fleet.all_slots)
    return (simulate_times if training == "none" else simulate)(job, fleet, out, as_json)
