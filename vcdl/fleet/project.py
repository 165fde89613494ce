"""Query a fleet's BOINC project for the account's weak key, the amount of open work, and the hosts."""

import math
import re
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from vcdl.errors import FleetError
from vcdl.errors.backoff import within
from vcdl.fleet.settings import CapacitySettings, Unit
from vcdl.planner.time_left import all_left

if TYPE_CHECKING:
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.run.folder import RunFolder

_TIMEOUT_S = 20.0
"""Seconds within which the project's web server must answer, so that a dead one does not hold up a pass."""
_MAX_BYTES = 1_000_000
"""Bytes of a page that are read, so that a wrong URL cannot fill the memory."""


def weak_key(url: str, key: str) -> str:
    """Ask a project's web server for an account's weak key.

    Args:
        url: The project's URL, with a slash at the end.
        key: The account key, or its weak key, which is returned after a check that the account exists.

    Raises:
        FleetError: The URL or the account is wrong. The message never shows the key.
    """
    # Clients find a project's scheduler by the URL in its page, so a page without it is no project's.
    if "scheduler" not in _page(url):
        raise FleetError(f"{url} is not a BOINC project: correct `project > url` in the fleet file")
    user, _, rest = key.partition("_")
    if rest:  # only the scheduler can check the rest of a weak key, and it would register this machine as a host
        answer = _page(f"{url}show_user.php?{urlencode({'userid': user, 'format': 'xml'})}")
        if "<error" in answer:
            raise FleetError(
                f"{url} has no account {user}, which the weak key names: copy the key from the project's page, "
                "Account keys"
            )
        return key
    answer = _page(f"{url}am_get_info.php?{urlencode({'account_key': key})}")
    if (found := re.search("<weak_auth>([0-9]+_[0-9a-f]+)</weak_auth>", answer)) is None:
        raise FleetError(f"{url} does not know the account key: copy it from the project's web page, Account keys")
    return found[1]


def _page(url: str) -> str:
    try:
        return within(_TIMEOUT_S, lambda: _read(url))
    except (OSError, HTTPException, ValueError) as error:
        # Omit the query, which contains the account key. For the same reason the error is raised `from None`.
        shown = url.partition("?")[0]
        raise FleetError(f"{shown} cannot be read, so no instance could work ({error}): fix this first") from None


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
        text: str = reply.read(_MAX_BYTES).decode("utf-8", "replace")
        return text


@dataclass(frozen=True)
class Queue:
    """The work of a project's open jobs.

    A job that is paused, or only waits for its last evaluation, is not open.
    """

    jobs: int
    """Number of open jobs."""
    unsent: int
    """Number of workunits that no client has fetched."""
    running: int
    """Number of workunits that are sent, or returned and not yet assimilated, on the fleet's kind of machine."""
    remaining: int
    """Number of subtasks until all jobs are done, unless a job ends earlier."""
    task_s: float | None
    """Recent mean seconds from sending a subtask to its report, or None if none was reported yet."""
    left_s: tuple[float, float] | None = None
    """Seconds until all jobs are done at the current speed, as a range that holds in four of five cases; None if
    unknown."""


def wanted_units(queue: Queue, capacity: CapacitySettings, now_s: float) -> int:
    """Return how many units of capacity the open work can use now: 0 if no job is open, otherwise from `min` to `max`.

    All unsent and running workunits count. A project always keeps some more workunits unsent than its clients fetch, so
    the fleet grows until the jobs cannot be split further, and shrinks once the last ones are sent. After the deadline
    it has at most the target.
    """
    if queue.jobs == 0:
        return 0
    at_once = float(queue.unsent + queue.running)
    if capacity.deadline is not None and capacity.deadline.timestamp() <= now_s:
        at_once = min(at_once, capacity.target / capacity.units_per_subtask)
    return max(capacity.min, min(capacity.limit, math.ceil(at_once * capacity.units_per_subtask)))


class ProjectDatabase:
    """Queries the BOINC project in a folder on this machine, whose database is opened at the first call.

    All calls raise GridError or GridUnavailable if the project or its database cannot be used.
    """

    def __init__(self, folder: Path, unit: Unit = "instance") -> None:
        """Prepare the queries.

        Args:
            folder: The project.
            unit: The fleet's unit of capacity: with `gpu` only running subtasks on GPUs count, with `vcpu` only others.
        """
        self._folder, self._unit = folder, unit

    def queue(self) -> Queue:
        """Return the present work of all open jobs.

        Raises:
            JournalError: A job's journal cannot be read.
        """
        from vcdl.boinc.daemons.open_jobs import open_runs
        from vcdl.boinc.grid.client_rows import ClientRows
        from vcdl.boinc.grid.workunit_rows import WorkunitRows

        project, database = self._opened
        open_jobs = {folder: left for folder in open_runs(project) if (left := _remaining(folder))[0]}
        stocks = [WorkunitRows(database, folder.path.name).stock() for folder in open_jobs]
        running, on_gpus = sum(stock.running for stock in stocks), sum(stock.on_gpus for stock in stocks)
        return Queue(
            jobs=len(open_jobs),
            unsent=sum(stock.unsent for stock in stocks),
            # A fleet of GPUs must not grow because of subtasks that run on CPUs, and vice versa.
            running={"gpu": on_gpus, "vcpu": running - on_gpus, "instance": running}[self._unit],
            remaining=sum(subtasks for subtasks, _ in open_jobs.values()),
            task_s=ClientRows(database).demand().task_s,
            left_s=all_left(list(open_jobs.values())),
        )

    def hosts(self) -> list[tuple[str, str]]:
        """Return each host's name in the journals, with the name that its machine reports, which may be any text."""
        rows = self._opened[1].execute("SELECT id, domain_name FROM host")
        return [
            (f"host-{id}", name.decode(errors="replace") if isinstance(name, bytes) else str(name)) for id, name in rows
        ]

    @cached_property
    def _opened(self) -> "tuple[BoincProject, BoincDatabase]":
        from vcdl.boinc.grid.database import BoincDatabase
        from vcdl.boinc.grid.project_folder import BoincProject

        project = BoincProject.at(self._folder)
        return project, BoincDatabase(project)


def instances_of_hosts(hosts: Iterable[tuple[str, str]], instances: Iterable[str]) -> dict[str, str]:
    """Find out which BOINC hosts are instances of a fleet, by the names of their machines.

    On AWS a machine has its instance's id as name only if the subnet names machines by resource.

    Args:
        hosts: Name of each host in the journals, with the name of its machine.
        instances: Ids of the instances.

    Returns:
        Name of a host → id of its instance, only for hosts that were found.
    """
    by_name = {id.rsplit("/", 1)[-1]: id for id in instances}
    labelled = ((host, machine.split(".", 1)[0]) for host, machine in hosts)
    return {host: by_name[label] for host, label in labelled if label in by_name}


def _remaining(folder: "RunFolder") -> tuple[int, tuple[float, float] | None]:
    """Return how many subtasks of a job remain, and the range of seconds until they are done, None if unknown.

    A job that is paused, or whose end is decided, has 0.
    """
    from vcdl.report.progress import RunGoal, range_left
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import clock_of, read_report

    report = read_report(folder)
    if report.stop is not None or folder.stop_request.exists():
        return 0, None
    job = read_frozen(folder)
    return max(0, job.subtasks - report.totals.applied), range_left(RunGoal.of(job), report, clock_of(folder)())
