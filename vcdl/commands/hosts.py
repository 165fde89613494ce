"""`vcdl hosts`: show the hosts that train a run, their uploads, and the trust in them; `ban` and `unban`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import (
    FILE,
    in_project,
    json_option,
    project_dir_option,
    project_of,
    project_option,
    run_argument,
    say,
    say_json,
)
from vcdl.errors import ExitCode, GridError

if TYPE_CHECKING:
    from vcdl.boinc.grid.host_report import HostFacts
    from vcdl.job import Job
    from vcdl.profile.stages import RunProfile
    from vcdl.run.folder import RunFolder
    from vcdl.trust.host_record import HostRecord
    from vcdl.trust.hosts import HostHistory
    from vcdl.trust.kept_hosts import ShownTrust

_EXAMPLES = """\b
Examples:
  vcdl hosts                       of the run below runs/ that changed last
  vcdl hosts runs/digits
  vcdl hosts runs/digits --json | jq '.[] | select(.state == "quarantined")'
  vcdl hosts mnist --project-dir ~/projects/grid
  vcdl hosts --export-population ours.yaml --project-dir ~/projects/grid     for vcdl simulate, vcdl plan
  vcdl hosts ban host-17 --project-dir ~/projects/grid     whatever it asks for, it gets nothing
  vcdl hosts unban host-17 --project-dir ~/projects/grid"""


def hosts(path: Path | None = None, as_json: bool = False) -> ExitCode:
    """Print the hosts of a run with their uploads and the trust in them, the least trusted ones first.

    Raises:
        RunFolderError, JobError, JournalError: The run cannot be read.
    """
    from vcdl.report.wording import duration
    from vcdl.run.finding import display_path, find_run
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import clock_of
    from vcdl.trust.kept_hosts import read_hosts

    folder = find_run(path)
    job, history = read_frozen(folder), read_hosts(folder)
    # Leave the silence of hosts unknown for a simulation, whose clock stands still after the run.
    now_s = clock_of(folder)() if folder.kind.has_wall_clock else None
    rows = _rows(job, history, _facts(folder), now_s)
    if as_json:
        return say_json([row | _machine(profile, row["host"]) for profile in [_profile(folder)] for row in rows])
    if not rows:
        return say([f"{job.name} in {display_path(folder.path)}: no host has received work yet"])
    say(_lines(rows))
    if history.verified:
        took = duration(history.verified_s)
        click.echo(f"verified by retraining here: {history.verified} of {history.updates} uploads, in {took}")
    if not job.is_for_strangers:
        click.echo("the hosts are the submitter's own (trust > kind): none is judged")
    return ExitCode.OK


def _profile(folder: "RunFolder") -> "RunProfile":
    from vcdl.profile.kept_profile import kept_profile
    from vcdl.profile.stages import RunProfile
    from vcdl.run.reading import journal_of

    with journal_of(folder) as journal:
        return RunProfile() if journal is None else kept_profile(journal).advance(save=True)


def _machine(profile: "RunProfile", host: str) -> dict[str, Any]:
    return dict(zip(("bytes_down", "bytes_up", "machine"), profile.machine(host), strict=True))


def ban(names: tuple[str, ...], project_dir: Path | None, *, banned: bool) -> ExitCode:
    """Ban hosts of a BOINC project, or lift their bans. A banned host gets no work for any job of the project.

    Args:
        names: The hosts, as `vcdl hosts` shows them (host-17), or only their numbers.
        project_dir: The BOINC project.
        banned: Whether to ban them or to lift their bans.

    Raises:
        GridError: A host is unknown, or the database cannot be reached.
    """
    if project_dir is None:
        raise click.UsageError("say whose hosts: --project-dir PROJECT, or --server NAME")
    from vcdl.boinc.grid import host_care
    from vcdl.boinc.grid.database import open_project

    numbers = [int(name.removeprefix("host-")) for name in names if name.removeprefix("host-").isdecimal()]
    if len(numbers) < len(names):
        raise GridError(f"{' '.join(names)}: name a host as `vcdl hosts` shows it: host-17, or 17")
    with open_project(project_dir) as (_, database):
        host_care.ban(database, numbers, banned=banned)
    what = "banned: BOINC's scheduler refuses it" if banned else "no longer banned: it gets work at its next request"
    return say(f"host-{number}: {what}" for number in numbers)


def export(file: Path, project_dir: Path | None) -> ExitCode:
    """Write the hosts of a BOINC project as a population file for simulations, without anything that names them.

    Raises:
        GridError: The project cannot be read, or has too few hosts.
        RunFolderError: The file cannot be written.
    """
    if project_dir is None:
        raise click.UsageError("say whose hosts: --project-dir PROJECT")
    import yaml

    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.grid.host_report import measured_hosts
    from vcdl.files.atomic import whole_file
    from vcdl.simulate.measured_population import active_hosts, cores_of, population_of
    from vcdl.yaml_schema.reading import YamlDumper

    now_s = time.time()
    with open_project(project_dir) as (_, database):
        measured = measured_hosts(database)
    try:
        population = population_of(measured, now_s)
    except ValueError as error:
        raise GridError(f"a population without names needs more hosts: {error}") from error
    with whole_file(file) as temporary:
        temporary.write_text(yaml.dump(population, Dumper=YamlDumper, sort_keys=False), encoding="utf-8")
    active, groups = active_hosts(measured, now_s), len(population["groups"])
    cores = cores_of(active)
    return say([f"{file}: {len(active)} hosts in {groups} groups; each of their {cores} cores counts as a host"])


def _facts(folder: "RunFolder") -> "Mapping[str, HostFacts]":
    """Look up what BOINC's database records about a run's hosts: tasks, errors, credit, bans and suspensions.

    Returns:
        Host name in the journal → its facts. Empty if the run is not a job of a BOINC project. Also empty if the
        project's database is unavailable; then a warning is printed to stderr.
    """
    if not folder.kind.has_daemons:
        return {}
    from vcdl.boinc.grid.database import open_project
    from vcdl.boinc.grid.host_report import facts_of

    try:
        with open_project(project_of(folder)) as (project, database):
            return facts_of(project, database, folder.path.name)
    except GridError as error:
        click.echo(f"only the journal's figures are shown, because BOINC's database does not answer: {error}", err=True)
        return {}


def _rows(
    job: "Job", history: "HostHistory", facts: "Mapping[str, HostFacts]", now_s: float | None
) -> list[dict[str, Any]]:
    """Return a row for each host, as the object that `--json` prints, the least trusted hosts first.

    Args:
        job: The job.
        history: What the journal says about the hosts.
        facts: Host → what BOINC says about it; empty outside of BOINC projects.
        now_s: The present time by the run's clock, or None if it means nothing, as in a simulation.

    Returns:
        The rows. None means unknown, or for weight and state that the job does not judge its hosts.
    """
    from vcdl.trust.kept_hosts import ShownTrust

    samples = sum(record.samples for record in history.hosts.values())
    rows = [
        _row(record, history, ShownTrust.of(job, history, name), facts.get(name), samples, now_s)
        for name, record in history.hosts.items()
    ]
    return sorted(rows, key=lambda row: (1.0 if row["weight"] is None else row["weight"], row["host"]))


def _row(
    record: "HostRecord",
    history: "HostHistory",
    trust: "ShownTrust",
    facts: "HostFacts | None",
    samples: int,
    now_s: float | None,
) -> dict[str, Any]:
    suspension = facts.suspension if facts else None
    # Use the later sign of life: the journal knows only of uploads, BOINC of every request of a host for any job.
    heard_of_s = max(record.heard_of_s, facts.heard_of_s if facts else 0.0)
    return {
        "host": record.name,
        "sent": record.sent,
        "running": facts.running if facts else None,
        "applied": record.applied,
        "refused": record.refused.total(),
        "refusals": dict(sorted(record.refused.items())),
        "superseded": record.superseded,
        "lost": record.lost,
        "errors": facts.errors if facts else None,
        "timeouts": facts.timeouts if facts else None,
        "turnaround_s": _round(record.turnaround_s, 1),
        "samples_per_s": _round(history.samples_per_s(record.name), 2),
        "staleness": round(record.staleness / record.applied, 2) if record.applied else None,
        "share": round(record.samples / samples, 4) if samples else None,
        "silent_s": None if now_s is None else round(max(0.0, now_s - heard_of_s), 1),
        "credit": round(facts.credit, 6) if facts else None,
        "verified": trust.verified,
        "weight": _round(trust.weight, 3),
        "state": _state(trust, facts),
        "rests_s": round(max(0.0, suspension.until_s - time.time()), 1) if suspension else None,
        "rests_for": suspension.why if suspension else None,
    }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _state(trust: "ShownTrust", facts: "HostFacts | None") -> str | None:
    # A ban applies to the whole project and takes precedence over the verdict of a single job.
    if facts and facts.banned:
        return "banned"
    # The job's own verdict takes precedence over BOINC's suspension, because it says why uploads are refused.
    if facts is None or facts.suspension is None or trust.is_out:
        return None if trust.state is None else trust.state.value
    return "resting" if facts.suspension.is_on(time.time()) else "on trial"


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    from vcdl.errors import printable
    from vcdl.report.wording import align_columns, duration

    def format_value(value: Any, form: str = "") -> str:
        return "–" if value is None else duration(value) if form == "s" else format(value, form)

    table = [
        ("host", "applied", "refused", "lost", "turnaround", "samples/s", "staleness", "share", "silent",
         "verified", "weight", "state")
    ]  # fmt: skip
    for row in rows:
        # Count BOINC's failed tasks: BOINC replaces them within a workunit, so the journal does not know of them all.
        lost = row["lost"] if row["errors"] is None else row["errors"] + row["timeouts"]
        state = f"{row['state']} for {duration(row['rests_s'])}" if row["rests_s"] else row["state"]
        table.append(
            (
                printable(row["host"]), str(row["applied"]), str(row["refused"]), str(lost),
                format_value(row["turnaround_s"], "s"), format_value(row["samples_per_s"], ".1f"),
                format_value(row["staleness"], ".1f"),
                format_value(row["share"], ".0%"), format_value(row["silent_s"], "s"), format_value(row["verified"]),
                format_value(row["weight"], ".2f"), format_value(state),
            )
        )  # fmt: skip
    lines = align_columns(table)
    for row in rows:
        if row["refusals"]:
            counts = ", ".join(f"{count} {name}" for name, count in row["refusals"].items())
            lines.append(f"refused of {printable(row['host'])}: {counts}")
        if row["rests_for"]:
            lines.append(f"{printable(row['host'])} {row['state']}: {row['rests_for']}")
    return lines


class _Hosts(click.Group):
    """A group whose command `show` may be omitted: `vcdl hosts runs/digits` means `vcdl hosts show runs/digits`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Insert `show`: without it click would take the run's folder for the name of a command.
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("hosts", cls=_Hosts, epilog=_EXAMPLES)
def command() -> None:
    """Show who trains a run, and each host's uploads; ban hosts."""


@command.command("show", cls=ServedCommand)
@run_argument
@project_option
@click.option(
    "--export-population", metavar="FILE.yaml", type=FILE, help="Write the project's hosts as a population, no names."
)
@json_option
def show_command(
    path: Path | None, project_dir: Path | None, export_population: Path | None, as_json: bool
) -> ExitCode:
    """Show a run's hosts; the word `show` may be omitted."""
    if export_population is not None:
        return export(export_population, project_dir)
    return hosts(in_project(path, project_dir), as_json)


_names = click.argument("names", metavar="HOST...", nargs=-1, required=True)
_in_project = project_dir_option("The BOINC project.")


@command.command("ban", cls=ServedCommand)
@_names
@_in_project
def ban_command(names: tuple[str, ...], project_dir: Path | None) -> ExitCode:
    """Have BOINC's scheduler refuse hosts; their open subtasks go to second hosts, too."""
    return ban(names, project_dir, banned=True)


@command.command("unban", cls=ServedCommand)
@_names
@_in_project
def unban_command(names: tuple[str, ...], project_dir: Path | None) -> ExitCode:
    """Lift the ban of hosts."""
    return ban(names, project_dir, banned=False)
