"""The measurement: many simulated hosts on one server for some minutes, and what the server made of it."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import closing

from benchmarks.boinc_load.backlogs import Watcher
from benchmarks.boinc_load.driver import Driver
from benchmarks.boinc_load.load_result import Load, LoadResult, Share, Spread, full_stage
from benchmarks.boinc_load.processes import WEB
from benchmarks.boinc_load.server_look import ServerLook
from benchmarks.boinc_load.simulated_host import Connections, Records, SimulatedHost, Updates
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.workunit_rows import READY
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.errors import GridError
from vcdl.journal.events import ResultRefused, UpdateApplied, UpdateRefused, UpdateSuperseded, WorkunitFailed
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of
from vcdl.run.run import Run

_DRAIN_S = 180.0
_STILL_S = 30.0
"""Without any progress of the server, after the hosts have brought home what they had."""
_SHOWN = 5
"""Errors and words of the scheduler that are shown."""


def account_key(database: BoincDatabase) -> str:
    """The key of the project's first account. Raises GridError without any."""
    rows = database.execute("SELECT authenticator FROM user ORDER BY id LIMIT 1")
    if not rows:
        raise GridError("the project has no account for the simulated hosts: make one on its web page first")
    return str(rows[0][0])


def measure(project: BoincProject, folder: RunFolder, load: Load, say: Callable[[str], None]) -> LoadResult:
    """Put the load on a project in which a job runs, for nothing but this. Raises VcdlError."""
    config, run, records = ServerConfig.at(project.path), Run.open(folder), Records()
    if not config.scheduler_url:
        raise GridError(
            f"{project.path}/html/user/schedulers.txt names no scheduler: the project is not made to the end"
        )
    with closing(BoincDatabase(project)) as database, closing(Updates(run)) as updates:
        key, ending = account_key(database), threading.Event()
        connections = Connections()  # one a thread, not one a host: a web server has few places
        chance, name = random.Random(1), f"bench-{int(time.time())}"
        hosts = [
            SimulatedHost(
                f"{name}-{number}", key, config.scheduler_url, lambda: load.train_s * chance.uniform(0.5, 1.5),
                connections, updates, records, ending,
            )
            for number in range(load.hosts)
        ]  # fmt: skip
        say(f"{load.hosts} hosts come within {load.ramp_s:.0f} s")
        driver = Driver(hosts, load.ramp_s)
        driver.run(load.ramp_s, lambda: say(f"{len(records.reported)} reported, {len(records.errors)} errors"))
        before = ServerLook.at(project, folder, database)
        watcher = Watcher(project)
        watcher.start()
        for spread in records.seconds.values():
            spread.clear()
        records.in_vain.clear()
        reported = len(records.reported)
        driver.run(
            load.duration_s,
            lambda: say(f"{len(records.reported) - reported} reported, {len(records.errors)} errors"),
        )
        in_vain = Counter(records.in_vain)
        backlogs, after = watcher.stop(), ServerLook.at(project, folder, database)
        latency = {stage: Spread.of(seconds) for stage, seconds in records.seconds.items()}
        idle_s = sum(records.seconds["without work"]) + sum(
            time.monotonic() - host.idle_since_s for host in hosts if host.idle_since_s is not None
        )
        say("the hosts bring home what they have")
        ending.set()
        driver.run(_DRAIN_S, lambda: None, until=lambda: all(host.is_through for host in hosts))
        driver.close()
        left = _unconcluded(folder, records.reported)
        waiting = _waiting(database, left)
        latency |= _server_latency(database, folder, before.at_s, after.at_s)
    duration_s = after.at_s - before.at_s
    applied = [each for each in _applied(folder) if before.at_s <= each[0] < after.at_s]
    subtasks, rate = len(applied), len(applied) / duration_s
    shares = _shares(before, after, subtasks)
    cores = os.cpu_count() or 1
    machine = (after.busy_s - before.busy_s) / duration_s / cores
    without_work = idle_s / (load.hosts * duration_s)
    return LoadResult(
        hosts=load.hosts,
        duration_s=round(duration_s, 1),
        train_s=load.train_s,
        subtasks=subtasks,
        subtasks_per_s=round(rate, 2),
        latency=latency,
        backlog={name: round(backlogs.mean(name), 1) for name in backlogs.counts},
        shares=shares,
        machine=round(machine, 3),
        without_work=round(without_work, 3),
        in_vain=dict(in_vain.most_common(_SHOWN)),
        full=full_stage(backlogs, rate, without_work, machine, cores, shares),
        lost=len(left - waiting),
        waiting=len(waiting),
        doubled=_doubled(folder),
        refused=sum(1 for _ in events_of(folder, *_REFUSALS)),
        errors=len(records.errors),
        first_errors=tuple(dict.fromkeys(records.errors))[:_SHOWN],
        update_bytes=max(records.bytes_up, default=0),
        growth={
            what: round(1e3 * (after.sizes[what] - before.sizes[what]) / max(subtasks, 1), 2) for what in before.sizes
        },
        away=backlogs.away,
    )


def _shares(before: ServerLook, after: ServerLook, subtasks: int) -> dict[str, Share]:
    """By process; of several web servers on this machine the busiest."""
    duration_s = after.at_s - before.at_s
    cpu_s = {name: used.cpu_s - before.used[name].cpu_s for name, used in after.used.items() if name in before.used}
    webs = sorted((name for name in cpu_s if name.startswith(WEB)), key=lambda name: cpu_s[name])
    return {
        WEB if name.startswith(WEB) else name: Share(
            round(1e3 * spent / max(subtasks, 1), 2),
            round(spent / duration_s, 3),
            round(after.used[name].memory_bytes / 1e6, 1),
        )
        for name, spent in cpu_s.items()
        if name not in webs[:-1]
    }


def _applied(folder: RunFolder) -> list[tuple[float, UpdateApplied]]:
    with closing(Journal.read_only(folder.journal_file)) as journal:
        recorded = list(journal.stream(kinds=[UpdateApplied]))
    return [(each.time_s, each.event) for each in recorded if isinstance(each.event, UpdateApplied)]


def _doubled(folder: RunFolder) -> int:
    """Versions of the weights beyond one for each subtask that was applied."""
    updates = [event for _, event in _applied(folder)]
    newest = max((event.version for event in updates), default=0)
    return newest - len({event.key for event in updates})


_REFUSALS = (UpdateRefused, ResultRefused)
_CONCLUDING = (UpdateApplied, *_REFUSALS, UpdateSuperseded, WorkunitFailed)


def _unconcluded(folder: RunFolder, reported: Iterable[str]) -> set[str]:
    """The reported workunits that the journal does not conclude, after patience for as long as it concludes others."""
    left, give_up_s = set(reported), time.monotonic() + _DRAIN_S
    while True:
        before = len(left)
        left -= {str(getattr(event, "workunit", "")) for event in events_of(folder, *_CONCLUDING)}
        if not left or time.monotonic() > give_up_s:
            return left
        if len(left) < before:
            give_up_s = time.monotonic() + _STILL_S
        time.sleep(1.0)


def _waiting(database: BoincDatabase, workunits: Collection[str]) -> set[str]:
    """Those of the workunits that wait for validator or assimilator."""
    if not workunits:
        return set()
    rows = database.execute(
        "SELECT name FROM workunit WHERE name IN %s AND (need_validate = 1 OR assimilate_state = %s)",
        tuple(workunits), READY,
    )  # fmt: skip
    return {row[0] for row in rows}


def _server_latency(database: BoincDatabase, folder: RunFolder, from_s: float, to_s: float) -> dict[str, Spread]:
    """From BOINC's tables (whole seconds) and the journal."""
    rows = database.execute(
        "SELECT w.name, r.create_time, r.sent_time, r.received_time FROM result r JOIN workunit w"
        " ON w.id = r.workunitid WHERE r.appid = %s AND r.received_time BETWEEN %s AND %s AND r.outcome = 1",
        database.app_id, int(from_s), int(to_s),
    )  # fmt: skip
    applied = {event.workunit: at_s for at_s, event in _applied(folder)}
    return {
        "created → sent": Spread.of([float(sent - created) for _, created, sent, _ in rows]),
        "received → applied": Spread.of(
            [max(0.0, applied[name] - received - 0.5) for name, _, _, received in rows if name in applied]
        ),
    }
