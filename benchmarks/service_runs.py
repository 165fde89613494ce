"""Runs for the service to show, made from dice: journals as a fleet with trouble writes them, and no training."""

import heapq
import math
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from vcdl.job import Job, save_job
from vcdl.job.data import DataSettings
from vcdl.job.model import ModelSettings
from vcdl.job.stop import StopSettings
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    RunFinished,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history
from vcdl.report.measures import Report
from vcdl.report.summary import summary_of, write_summary
from vcdl.run.folder import RunFolder
from vcdl.run.kind import LOCAL, RunKind
from vcdl.run.reading import read_report
from vcdl.trust.kept_hosts import load_host_history
from vcdl.wire.workunit import Named

Timed = tuple[float, Event]
_ROWS = 20_000
"""Rows of a transaction."""


def trained(
    name: str, epochs: int, shards: int, hosts: int, *, until: float = 1.0, lost: float = 0.03, refused: float = 0.02
) -> Iterator[Timed]:
    """The events of a job that has done a share `until` of its epochs, with seconds from its begin."""
    dice = random.Random(name)
    speeds = {f"host-{number:03d}": dice.uniform(20.0, 60.0) for number in range(1, hosts + 1)}
    free = [(0.0, host) for host in speeds]
    heapq.heapify(free)
    version, last = 0, max(1, round(epochs * until))
    yield 0.0, RunStarted(resumed=False)
    for epoch in range(1, last + 1):
        end_s, begin = 0.0, version
        waiting = [(shard, 0) for shard in reversed(range(shards))]
        ended: list[tuple[float, Event]] = []
        while waiting:
            now_s, host = heapq.heappop(free)
            shard, attempt = waiting.pop()
            workunit = f"{name}_e{epoch:04d}_s{shard:03d}_a{attempt}_v{begin:06d}"
            yield now_s, WorkunitCreated(workunit)
            yield now_s, WorkunitSent(workunit, host, 90_000)
            done_s = now_s + speeds[host] * dice.uniform(0.9, 1.2)
            fate = dice.random()
            if fate < lost:
                ended.append((done_s, WorkunitFailed(workunit, "its host did not report in time")))
                waiting.append((shard, attempt + 1))
            elif fate < lost + refused:
                detail = "it changes the weights 4.1 times as much as the others' uploads: hostile, or faulty"
                ended.append((done_s, UpdateRefused(workunit, "step_too_long", detail, 88_000, host)))
                waiting.append((shard, attempt + 1))
            else:
                ended.append((done_s, _applied(workunit, host, done_s - now_s, epoch / epochs, dice)))
            heapq.heappush(free, (done_s + dice.uniform(0.5, 2.0), host))
        for done_s, event in sorted(ended, key=lambda one: one[0]):
            if isinstance(event, UpdateApplied):
                version += 1
                event = _as(event, version)
            yield done_s, event
            end_s = max(end_s, done_s)
        yield end_s, EpochClosed(epoch, version)
        if last > 2000 and epoch % 100:
            continue
        for of in sorted({version - 2, version}):
            yield end_s, EvaluationWanted(of, epoch, "validation")
        for of in sorted({version - 2, version}):
            yield end_s + 2, _evaluated(of, epoch, epochs, dice)
    if until >= 1.0:
        yield end_s + 3, StopDecided("epochs", version)
        yield end_s + 4, _evaluated(version, last, epochs, dice, "final_validation")
        yield end_s + 5, RunFinished()


def _applied(workunit: str, host: str, train_s: float, done: float, dice: random.Random) -> UpdateApplied:
    staleness, loss = min(9, int(dice.expovariate(0.7))), (0.1 + math.exp(-4.0 * done)) * dice.uniform(0.8, 1.0)
    update = UpdateApplied(workunit, 0, 0, staleness, 0.05, 1000, 1.0, train_s * 0.8, loss, 88_000, host)
    told = {"start": 4.0, "prepare": 0.4, "first": 1.1, "write": 0.2}
    return replace(update, waited_s=0.2, fold_s=0.03, times_s=told)


def _as(event: UpdateApplied, version: int) -> UpdateApplied:
    return replace(event, version=version, base_version=max(0, version - 1 - event.staleness))


def _evaluated(
    version: int, epoch: int, epochs: int, dice: random.Random, split: str = "validation"
) -> VersionEvaluated:
    accuracy = 0.93 - 0.5 * math.exp(-4.0 * epoch / epochs) + dice.uniform(-0.012, 0.012)
    return VersionEvaluated(version, epoch, split, 5000, 1.9 * (1 - accuracy), 1.4, {"accuracy": accuracy})


def write_run(
    path: Path, epochs: int, shards: int, hosts: int, kind: RunKind = LOCAL, began_s: float | None = None, **dice: float
) -> RunFolder:
    """A run with such a journal; its last event is now, unless it says when it began."""
    folder = RunFolder(path.resolve())
    folder.create(kind)
    job = Job(
        name=path.name,
        model=ModelSettings(builtin=Named("small_cnn", {})),
        data=DataSettings(dataset="fashion-mnist", shards=shards),
        stop=StopSettings(epochs=epochs),
    )
    save_job(job, folder.job_file)
    events = trained(path.name, epochs, shards, hosts, **dice)
    with closing(Journal.at(folder.journal_file)) as journal:
        if began_s is None:
            listed = list(events)
            began_s = time.time() - listed[-1][0]
            events = iter(listed)
        page: list[Timed] = []
        for time_s, event in events:
            page.append((began_s + time_s, event))
            if len(page) == _ROWS:
                journal.append_at(page)
                page.clear()
        journal.append_at(page)
        kept_history(journal).advance(save=True), load_host_history(journal).advance(save=True)
    if dice.get("until", 1.0) >= 1.0:
        report: Report = read_report(folder)
        write_summary(folder.summary_file, summary_of(job.name, report))
    return folder
