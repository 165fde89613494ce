"""The coordinator's time an update while many workunits are open, and a report's time and memory of a long journal.

    python -m benchmarks.bench_coordinator [--open 100 1000 10000] [--updates 2000] [--events 100000]

An update is what the work generator does for one: the events of a workunit (created, sent, applied) and the
coordinator's next actions. The versions whose snapshots are kept are asked for once a step. A report is that of
`vcdl status`, in a process of its own. All times are CPU time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunStarted,
    UpdateApplied,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitSent,
)
from vcdl.journal.journal import Journal
from vcdl.loop.coordinator import CloseEpoch, Coordinator, Create, Evaluate
from vcdl.loop.plan import Plan
from vcdl.run.finding import read_report
from vcdl.run.folder import RunFolder
from vcdl.wire.workunit import WorkunitName

_BATCH = 3000
_LOOKS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, nargs="*", default=[100, 1000, 10_000], help="workunits that are open")
    parser.add_argument("--updates", type=int, default=2000, help="measured with each of --open")
    parser.add_argument("--events", type=int, default=100_000, help="in the journal that is read; 0: none")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report is not None:
        _report(RunFolder(options.report))
        return
    for count in options.open:
        job = _Job(count)
        began_s = time.process_time()
        for _ in range(options.updates):
            job.update()
        updated_s = time.process_time()
        for _ in range(_LOOKS):
            job.versions_in_use()
        update_s, look_s = (updated_s - began_s) / options.updates, (time.process_time() - updated_s) / _LOOKS
        print(f"{count:6d} open  {1e6 * update_s:9.1f} µs an update  {1e6 * look_s:7.1f} µs for the versions in use")
    if options.events:
        with tempfile.TemporaryDirectory(prefix="vcdl-bench-") as folder:
            _fill(RunFolder(Path(folder)), options.events)
            subprocess.run([sys.executable, "-m", "benchmarks.bench_coordinator", "--report", folder], check=True)


class _Job:
    """A job whose clients bring the oldest workunit back first; an epoch has as many shards as workunits are open."""

    def __init__(self, count: int) -> None:
        self._open = count
        self._events = 0
        self._version = 0
        self._coordinator = Coordinator(
            Plan(
                job="bench",
                seed=1,
                shards=count,
                rolling=True,
                validate_every=EVERY_EPOCH,
                has_test=True,
                epochs=1_000_000,
                target_accuracy=None,
                wall_time_s=None,
                patience_epochs=None,
                tries=3,
            )
        )
        self._follow(RunStarted(resumed=False))
        self._act()

    def update(self) -> None:
        workunit = next(iter(self._coordinator.open))
        self._version += 1
        self._follow(_applied(workunit, self._version))
        self._act()

    def versions_in_use(self) -> set[int]:
        return self._coordinator.versions_in_use

    def _act(self) -> None:
        while actions := self._coordinator.actions(0.0, self._open):
            for action in actions:
                match action:
                    case Create(epoch, shard, attempt):
                        workunit = f"bench_e{epoch:04d}_s{shard:03d}_a{attempt}_v{self._version:06d}"
                        self._follow(WorkunitCreated(workunit))
                        self._follow(WorkunitSent(workunit, "host", 0))
                    case CloseEpoch(epoch):
                        self._follow(EpochClosed(epoch, self._version))
                    case Evaluate(version, epoch):
                        self._follow(EvaluationWanted(version, epoch, VALIDATION))
                        self._follow(_evaluated(version, epoch))

    def _follow(self, event: Event) -> None:
        self._events += 1
        self._coordinator.follow(Recorded(self._events, 0.0, event))


def _applied(workunit: str, version: int) -> UpdateApplied:
    base = WorkunitName.parse(workunit).base_version
    return UpdateApplied(
        workunit=workunit,
        version=version,
        base_version=base,
        staleness=version - 1 - base,
        weight=0.05,
        samples=10,
        fraction=1.0,
        train_s=1.0,
        loss=0.5,
        bytes_up=100,
    )


def _evaluated(version: int, epoch: int) -> VersionEvaluated:
    return VersionEvaluated(
        version=version, epoch=epoch, split=VALIDATION, samples=100, loss=0.4, accuracy=0.9, evaluation_s=0.1
    )


def _fill(folder: RunFolder, events: int) -> None:
    """A journal of workunits that are created, sent and applied one after the other, in epochs of 100 shards."""
    journal = Journal.at(folder.journal_file)
    journal.append(RunStarted(resumed=False))
    for first in range(0, events // 3, _BATCH):
        batch: list[Event] = []
        for version in range(first + 1, min(first + _BATCH, events // 3) + 1):
            epoch, shard = (version - 1) // 100 + 1, (version - 1) % 100
            workunit = f"bench_e{epoch:04d}_s{shard:03d}_a0_v{version - 1:06d}"
            batch += [WorkunitCreated(workunit), WorkunitSent(workunit, "host", 100), _applied(workunit, version)]
            if shard == 99:
                batch += [
                    EpochClosed(epoch, version),
                    EvaluationWanted(version, epoch, VALIDATION),
                    _evaluated(version, epoch),
                ]
        journal.append(*batch)
    journal.close()


def _report(folder: RunFolder) -> None:
    before_mb = _most_memory_mb()
    began_s = time.process_time()
    report = read_report(folder)
    took_s = time.process_time() - began_s
    grown_mb = _most_memory_mb() - before_mb
    print(f"a journal with {len(report.updates)} updates: report in {took_s:.2f} s, {grown_mb:.0f} MB")


def _most_memory_mb() -> float:
    """The most memory this process has had; getrusage would count the parent's, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
