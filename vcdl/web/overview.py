"""Compute the pages of hosts, of the server and of fleets, as sections that each have a sentence and a table."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from vcdl.errors import VcdlError, printable, without_passwords
from vcdl.report.wording import duration, plural, size
from vcdl.trust.kept_hosts import ShownTrust
from vcdl.web.catalogue import JobCatalogue, project_of
from vcdl.web.job_view import JobView

if TYPE_CHECKING:
    from vcdl.fleet.instance_history import InstanceHistory

_MOST_JOBS, _MOST_HOSTS = 200, 200
_ENDED = 20
"""Most ended instances that are shown, newest first: enough to see what keeps failing."""
_UNKNOWN = "–"
_BAD = ("quarantined", "convicted", "doubtful", "banned")
"""States of hosts that are shown in red."""


@dataclass(frozen=True)
class PageCell:
    """A cell of a table."""

    text: str
    kind: str = ""
    """Style of the cell: `good`, `bad`, `number`, `group` (a heading of rows) or `of-group`, or empty for plain text.
    """
    job: str = ""
    """Name of the job to whose page the cell links."""
    action: str = ""
    """Path to which the cell's button posts."""


@dataclass(frozen=True)
class PageSection:
    """A section of a page: a heading, a sentence and a table. Any of them may be empty."""

    heading: str
    words: str = ""
    columns: Sequence[str] = ()
    """Headings of the columns; a column of numbers begins with `#`, which is not shown."""
    rows: list[Sequence[PageCell]] = field(default_factory=list)


def hosts_page(catalogue: JobCatalogue, job: str = "") -> list[PageSection]:
    """Return the page of hosts: a row for each host and job, the least trusted hosts and the most failures first.

    Args:
        catalogue: The jobs.
        job: The only job whose hosts are shown, finished or not; an empty string for all open jobs.

    Raises:
        RunFolderError: The folder of runs cannot be read, or has no such job.
    """
    # Query the bans once for all rows, because this opens BOINC's database.
    banned = banned_hosts(catalogue.runs)
    found = [
        _host_row(view, name, banned, is_of_one=bool(job))
        for view in _views(catalogue, job)
        for name in view.hosts.hosts
    ]
    found.sort(key=lambda one: one[0])
    hosts = plural(len({cells[0].text for _, cells in found}), "host")
    whose = f"of {printable(job)}" if job else "with work of open jobs, a row for each host and job"
    words = f"{hosts} {whose}, those with trouble first"
    if len(found) > _MOST_HOSTS:
        words += f"; {_MOST_HOSTS} are shown, `vcdl hosts JOB --json` has all"
    columns: tuple[str, ...] = ("host", "state") if job else ("host", "job", "state")
    columns += ("#applied", "#lost", "#refused", "#samples/s", "#staleness", "#silent for", "#down", "#up", "machine")
    columns += () if banned is None else ("",)
    return [PageSection("", words, columns, [cells for _, cells in found[:_MOST_HOSTS]])]


def _host_row(
    view: JobView, name: str, banned: frozenset[str] | None, is_of_one: bool
) -> tuple[tuple[float, float], Sequence[PageCell]]:
    """Return the sort key and the cells of a host's row.

    Args:
        view: The job.
        name: The host.
        banned: Hosts that BOINC bans, or None if unknown: the row then has no button to ban the host.
        is_of_one: Leave out the column with the job, because the page shows only one.

    Returns:
        The key, which is lower for a less trusted host, and then for a larger fraction of failures; and the cells.
    """
    host, job = view.hosts.hosts[name], view.folder.path.name
    view.profile.sentence(view.job)  # has the machines read in the background, for a later request
    down, up, machine = view.profile.machines.get(name, (None, None, ""))
    refused, trust = host.refused.total(), ShownTrust.of(view.job, view.hosts, name)
    speed = view.hosts.samples_per_s(name)
    is_banned = banned is not None and name in banned
    judged = trust.state.value if trust.state else ""
    state, ban = ("banned", "unban") if is_banned else (judged, "ban")
    tried = max(1, host.applied + refused + host.lost)
    cells = (
        PageCell(printable(name)),
        *(() if is_of_one else (PageCell(job, job=job),)),
        PageCell(state or _UNKNOWN, "bad" if state in _BAD else ""),
        _number(host.applied),
        _trouble(host.lost, tried),
        _trouble(refused, tried),
        _number(None if speed is None else f"{speed:.1f}"),
        _number(f"{host.staleness / host.applied:.1f}" if host.applied else None),
        _silence(view, host.heard_of_s),
        _number(None if down is None else size(down)),
        _number(None if up is None else size(up)),
        PageCell(printable(machine) or _UNKNOWN),
        *([] if banned is None else [PageCell(ban, action=f"/hosts/{quote(name, safe='')}/{ban}")]),
    )
    return (1.0 if trust.weight is None else trust.weight, -(refused + host.lost) / tried), cells


def _silence(view: JobView, since_s: float) -> PageCell:
    """Return a cell with the time since a Unix time; `–` if it is 0, or in a simulation, whose clock is virtual."""
    is_known = since_s and view.folder.kind.has_wall_clock
    return _number(duration(max(0.0, time.time() - since_s)) if is_known else None)


def banned_hosts(runs: Path) -> frozenset[str] | None:
    """Return the hosts that BOINC's scheduler refuses, by their names in journals.

    Args:
        runs: The folder of runs.

    Returns:
        None if the runs belong to no BOINC project, or if its database cannot be read, so that it is unknown.
    """
    if (path := project_of(runs)) is None:
        return None
    from vcdl.boinc.grid import host_care
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.project_folder import BoincProject

    try:
        with closing(BoincDatabase(BoincProject.at(path))) as database:
            return frozenset(f"host-{number}" for number in host_care.banned_hosts(database))
    # Return None and not an empty set: that would offer to ban hosts that may be banned already.
    except VcdlError:
        return None


def _job_row(view: JobView) -> Sequence[PageCell]:
    name, history, now_s = view.folder.path.name, view.report.history, view.standing.now_s
    at_work, uploads = len(history.at_work), len(view.folder.waiting_uploads())
    rates = None if now_s is None else view.report.rates(now_s)
    return (
        PageCell(name, job=name),
        PageCell(without_passwords(view.job.store.url or "a folder").partition("://")[0]),
        _number(at_work),
        _number(len(history.open) - at_work),
        PageCell(str(uploads), "bad" if uploads > 20 else "number"),
        _number(None if rates is None else f"{rates.updates_s:.2f}"),
        _silence(view, history.last_s),
    )


def server_page(catalogue: JobCatalogue, watchers: int) -> list[PageSection]:
    """Return the page of the server: open jobs with their stores and backlogs, BOINC's daemons, and the machine.

    Args:
        catalogue: The jobs.
        watchers: Number of browsers that watch a page.

    Raises:
        RunFolderError: The folder of runs cannot be read.
    """
    jobs = PageSection(
        "Open jobs", "", ("job", "store", "#at work", "#waiting", "#uploads waiting", "#updates/s", "#last event ago")
    )
    jobs.rows.extend(map(_job_row, _open_views(catalogue)))
    disk = shutil.disk_usage(catalogue.runs if catalogue.runs.is_dir() else "/")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    free = PageCell(f"{size(disk.free)} of {size(disk.total)}", "bad" if disk.free < disk.total / 20 else "")
    rows = {
        "free on the disk of the runs": free,
        "load of 1, 5 and 15 minutes": PageCell(f"{load}, on {plural(os.cpu_count() or 1, 'core')}"),
        "browsers that watch a page": PageCell(str(watchers)),
    }
    machine = PageSection("Machine", "", ("what", "how much"), [(PageCell(what), cell) for what, cell in rows.items()])
    return [*(section for section in (jobs,) if section.rows), *_daemons(catalogue.runs), machine]


def _daemons(runs: Path) -> Iterator[PageSection]:
    """Yield the section with the states of the project's daemons, or nothing if the runs belong to no BOINC project."""
    if (path := project_of(runs)) is None:
        return
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.boinc.project.processes import is_running
    from vcdl.boinc.project.server_config import ServerConfig

    section = PageSection("Daemons", "", ("daemon", "state", "#last line of its log"))
    try:
        project = BoincProject.at(path)
        logs = project.path / f"log_{project.host}"
        for daemon in ServerConfig.at(project.path).daemons:
            log = logs / f"{daemon.name}.log"
            ago_s = time.time() - log.stat().st_mtime if log.is_file() else None
            runs_now = is_running(project, daemon)
            state = (
                PageCell("runs", "good") if runs_now else PageCell("off" if daemon.disabled else "does not run", "bad")
            )
            silent = _number(None if ago_s is None else f"{duration(max(0.0, ago_s))} ago")
            section.rows.append((PageCell(daemon.name), state, silent))
    except VcdlError as error:
        section = PageSection("Daemons", str(error))
    yield section


def fleets_page(files: Sequence[Path]) -> list[PageSection]:
    """Return the page of fleets: for each fleet file a section with its cost, alerts and instances.

    A fleet that cannot be read gets a section with the error.
    """
    return [_fleet(file) for file in files]


def money_words(files: Sequence[Path]) -> str:
    """Return a phrase on what all these fleets together cost per hour and have cost so far, in dollars.

    Fleets that cannot be read are left out; with none left, the phrase is empty.
    """
    from vcdl.fleet.cost import present_cost
    from vcdl.fleet.ledger import Ledger
    from vcdl.fleet.open import Fleet

    costs = []
    for file in files:
        with suppress(VcdlError):  # the page of fleets shows the error
            costs.append(present_cost(Ledger(Fleet.of_file(file).folder.ledger_file), time.time()))
    spent_usd, usd_per_h = (sum(one) for one in zip(*costs, strict=True)) if costs else (0.0, 0.0)
    return f"{usd_per_h:.2f} $/h now, {spent_usd:.2f} $ so far" if costs else ""


def _fleet(file: Path) -> PageSection:
    from vcdl.fleet.cost import present_cost
    from vcdl.fleet.ledger import Ledger
    from vcdl.fleet.open import Fleet

    try:
        fleet, now_s = Fleet.of_file(file), time.time()
        state, known = fleet.folder.read(), Ledger(fleet.folder.ledger_file).history().until(now_s)
    except VcdlError as error:
        return PageSection(file.stem, str(error))
    live = [one for one in known if one.ending is None]
    spent_usd, usd_per_h = present_cost(Ledger(fleet.folder.ledger_file), now_s)
    budget = f" of {fleet.settings.budget_usd:g} $" if fleet.settings.budget_usd is not None else ""
    words = [f"{plural(len(live), 'instance')}, {usd_per_h:.2f} $/h, {spent_usd:.2f} ${budget} spent", state.goal.value]
    words += [f"alert: {alert}" for alert in state.alerts]
    words.append(
        f"last pass {duration(max(0.0, now_s - state.last_pass_s))} ago" if state.last_pass_s else "no pass yet"
    )
    columns = ("instance", "type", "place", "kind", "state", "#runs for", "#$/h", "#$ so far")
    section = PageSection(fleet.settings.name, "; ".join(words), columns)
    ended = sorted((one for one in known if one.ending is not None), key=lambda one: -one.end_s)[:_ENDED]
    section.rows.extend(map(_instance_row, [*live, *ended]))
    return section


def _instance_row(one: "InstanceHistory") -> Sequence[PageCell]:
    kind = "on demand" if one.launch.on_demand else "preemptible"
    return (
        *map(PageCell, (one.launch.id, one.launch.type, one.launch.zone, kind)),
        PageCell("live", "good") if one.ending is None else PageCell(str(one.ending)),
        _number(duration(one.lifetime_s)),
        _number(f"{one.rates[-1].usd_per_h(one.launch.on_demand):.3f}" if one.rates else None),
        _number(f"{float(one.charge().paid_usd):.2f}"),
    )


def _views(catalogue: JobCatalogue, job: str) -> Iterator[JobView]:
    """Yield the view of the named job, or the views of all open jobs if the name is empty.

    Each view is locked and up to date until the next one is requested.
    """
    if not job:
        yield from _open_views(catalogue)
        return
    with catalogue.view(job).current() as view:
        yield view


def _open_views(catalogue: JobCatalogue) -> Iterator[JobView]:
    """Yield the views of open jobs, at most `_MOST_JOBS`, skipping those that cannot be read.

    Each view is locked and up to date until the next one is requested.
    """
    for name in [name for is_over, name in catalogue.list_jobs() if not is_over][:_MOST_JOBS]:
        try:
            with catalogue.view(name).current() as view:
                yield view
        except VcdlError:  # the list of jobs shows the error
            continue


def _number(value: object) -> PageCell:
    return PageCell(_UNKNOWN if value is None else str(value), "number")


def _trouble(count: int, tried: int) -> PageCell:
    return PageCell(str(count), "bad" if count >= max(2, 0.1 * tried) else "number")
