"""The cost of a long job: an event, a round of the work generator, `status`, `resume`, a server that starts, a redraw.

    python -m benchmarks.bench_growth [PART …] [--events 10000 100000 1000000] [--open 100 1000 10000] [--shards 10000]

Parts: fold, round, status, resume, catch_up, redraw, refold. `refold`: `status` twice and `resume`, where no state is
kept. `--events` counts subtask events: a workunit that is created,
sent and applied is three. Versions are measured as often as by default, every ten updates, beside them. A journal of
10^7 takes 3 GB of disk and some minutes to make.

All times are processor time of the one process that is named. `read` counts how often a process read the journal's
bytes. The exponent is that of the last two rows: 0 is constant, 1 linear.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from vcdl.run.folder import RunFolder
from vcdl.trust.job_trust import TrustPlan
from vcdl.wire.workunit import WorkunitName

PARTS = ("fold", "round", "status", "resume", "catch_up", "redraw", "refold")
_BATCH = 9000
_BEHIND = 9000
"""Events since states were kept."""
_EVERY = 10
"""Updates between two evaluations."""
_BEGAN_S = 1_700_000_000.0
_TIMEOUT_S = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--events", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--open", type=int, nargs="*", default=[100, 1000, 10_000], help="workunits that are open")
    parser.add_argument("--shards", type=int, default=10_000, help="subtasks of an epoch")
    parser.add_argument("--updates", type=int, default=2000, help="measured with each of --open")
    parser.add_argument("--folder", type=Path, help="where the runs are made, kept and found again [default: nowhere]")
    parser.add_argument("--child", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _CHILDREN[options.child[0]](RunFolder(Path(options.child[1])))
        return
    parts = options.parts or PARTS
    if "fold" in parts:
        _print("Coordinator, µs an event", "open", [(count, _fold(count, options.updates)) for count in options.open])
    if "round" in parts:
        rows = [(count, _round(count, options.updates)) for count in options.open]
        _print("A round of the work generator", "open", rows)
    if "redraw" in parts:
        _print("A redraw", "updates", [(count, _redraw(count)) for count in (1000, 10_000, 100_000, 1_000_000)])
    wanted = [part for part in ("status", "catch_up", "resume", "refold") if part in parts]
    if wanted:
        tables: dict[str, list[tuple[int, dict[str, float]]]] = {part: [] for part in wanted}
        for events in options.events:
            with tempfile.TemporaryDirectory(prefix="vcdl-bench-") as temporary:
                folder = (options.folder or Path(temporary)).absolute()
                made = LongRun.make(folder / f"run-{events}", events, options.shards, max(options.open))
                for part in wanted:
                    measured = made.measured(part)
                    print(f"{part} after {events} events: {measured}", file=sys.stderr, flush=True)
                    tables[part].append((events, measured))
        for part, measures in tables.items():
            _print(part, "events", measures)


def _print(title: str, counted: str, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
    columns = list(rows[0][1])
    print(f"\n{title}\n{counted:>10}" + "".join(f"{column:>14}" for column in columns))
    for count, figures in rows:
        print(f"{count:10d}" + "".join(f"{figures[column]:14.4g}" for column in columns))
    if len(rows) > 1:
        (before, less), (after, more) = rows[-2:]
        powers = [math.log(max(more[c], 1e-9) / max(less[c], 1e-9)) / math.log(after / before) for c in columns]
        print(f"{'exponent':>10}" + "".join(f"{power:14.2f}" for power in powers), flush=True)


# -- one event


def _plan(shards: int, **settings: Any) -> Plan:
    return Plan(
        job="bench",
        seed=1,
        shards=shards,
        rolling=True,
        validate_every=_EVERY,
        has_test=True,
        epochs=1_000_000,
        target_accuracy=None,
        wall_time_s=None,
        patience_epochs=None,
        tries=3,
        **settings,
    )


class _Clients:
    """A job whose clients bring the oldest workunit back first; an epoch has as many shards as workunits are open."""

    def __init__(self, count: int) -> None:
        self._open = count
        self._events = 0
        self._version = 0
        self._waiting: list[str] = []
        self._next = 0
        self._coordinator = Coordinator(_plan(count, needs_bases=True, trust=TrustPlan(rolls_back=True)))
        self._follow(RunStarted(resumed=False))
        self._act()

    @property
    def events(self) -> int:
        return self._events

    def update(self) -> None:
        workunit, self._next = self._waiting[self._next], self._next + 1
        self._version += 1
        self._follow(_applied(workunit, self._version))
        self._act()

    def _act(self) -> None:
        while actions := self._coordinator.actions(0.0, self._open):
            for action in actions:
                match action:
                    case Create(epoch, shard, attempt):
                        workunit = f"bench_e{epoch:04d}_s{shard:03d}_a{attempt}_v{self._version:06d}"
                        self._waiting.append(workunit)
                        self._follow(WorkunitCreated(workunit))
                        self._follow(WorkunitSent(workunit, "host", 0))
                    case CloseEpoch(epoch):
                        self._follow(EpochClosed(epoch, self._version))
                    case Evaluate(version, epoch):
                        self._follow(EvaluationWanted(version, epoch, VALIDATION))
                        self._follow(_evaluated(version, epoch))

    def _follow(self, event: Event) -> None:
        self._events += 1
        self._coordinator.state.follow(Recorded(self._events, 0.0, event))


def _fold(count: int, updates: int) -> dict[str, float]:
    job = _Clients(count)
    events, began_s = job.events, time.process_time()
    for _ in range(updates):
        job.update()
    took_s = time.process_time() - began_s
    return {"µs an event": 1e6 * took_s / (job.events - events), "µs an update": 1e6 * took_s / updates}


def _round(count: int, updates: int) -> dict[str, float]:
    """A round for each update, as in `vcdl simulate` with one slot a client: each workunit starts from weights of its
    own, which are kept.
    """
    from tests.server import Disk, Server

    with tempfile.TemporaryDirectory(prefix="vcdl-bench-") as path:
        disk = Disk.new(Path(path), _plan(count))
        server = Server(disk)
        disk.grid.wanted = 1
        store = _CountingStore(server.store)
        object.__setattr__(server.loop.snapshots, "store", store)
        vector = store.read()[1]
        waiting = [f"bench_e0001_s{shard:03d}_a0_v{shard:06d}" for shard in range(count)]
        for version in range(count):
            server.snapshots.keep(version, vector)
        server.journal.append(*(WorkunitCreated(workunit) for workunit in waiting))
        disk.grid.wanted = count
        store.newest = count
        server.generator.run_once(0.0)
        began_s = time.process_time()
        for number in range(min(updates, count)):
            store.newest += 1
            server.journal.append(_applied(waiting[number], store.newest))
            disk.grid.submitted.pop(waiting[number])
            server.generator.run_once(0.0)
        took_s = time.process_time() - began_s
        kept = len(list(disk.folder.snapshots.iterdir()))
        server.close()
        return {"µs an update": 1e6 * took_s / min(updates, count), "snapshots": kept}


@dataclass
class _CountingStore:
    """A store whose version is a number, so that nothing but the work generator is measured."""

    store: Any
    newest: int = 0

    def version(self) -> int:
        return self.newest

    def read(self) -> tuple[int, Any]:
        return self.newest, self.store.read()[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


# -- a long journal


def _applied(workunit: str, version: int) -> UpdateApplied:
    base = WorkunitName.parse(workunit).base_version
    return UpdateApplied(
        workunit=workunit,
        version=version,
        base_version=base,
        staleness=version - 1 - base,
        weight=0.05,
        samples=2,
        fraction=1.0,
        train_s=1.0,
        loss=0.5,
        bytes_up=100,
    )


def _evaluated(version: int, epoch: int) -> VersionEvaluated:
    return VersionEvaluated(
        version, epoch, VALIDATION, samples=100, loss=0.4, evaluation_s=0.1, metrics={"accuracy": 0.9}
    )


def subtasks(count: int, shards: int) -> Iterator[Event]:
    """Workunits that are created, sent and applied one after the other, from weights a few versions old."""
    for version in range(1, count + 1):
        epoch, shard = (version - 1) // shards + 1, (version - 1) % shards
        workunit = f"bench_e{epoch:04d}_s{shard:03d}_a0_v{max(0, version - 5):06d}"
        yield WorkunitCreated(workunit)
        yield WorkunitSent(workunit, f"host-{version % 1000}", 100)
        yield _applied(workunit, version)
        if version % _EVERY == 0 or shard == shards - 1:
            yield EvaluationWanted(version, epoch, VALIDATION)
            yield _evaluated(version, epoch)
        if shard == shards - 1:
            yield EpochClosed(epoch, version)


@dataclass(frozen=True)
class LongRun:
    """The folder of a local run that was killed after many updates."""

    folder: RunFolder
    version: int

    @classmethod
    def make(cls, path: Path, events: int, shards: int, open_workunits: int) -> "LongRun":
        """In a process of its own: this one stays small."""
        if not path.exists():
            arguments = [str(path), str(events), str(shards), str(open_workunits)]
            _module("make", json.dumps(arguments))
        return cls(RunFolder(path), events // 3)

    def measured(self, part: str) -> dict[str, float]:
        """The figures of a part."""
        if part == "resume":
            return self.resumed()
        if part == "refold":
            self.forget_states()
            first, second = self.child("status"), self.child("status")
            self.forget_states()
            return {
                "s": first["s"],
                "again s": second["s"],
                **{f"resume {name}": one for name, one in self.resumed().items()},
            }
        return self.child(part)

    def forget_states(self) -> None:
        """As another version of vcdl finds the run."""
        import sqlite3

        with closing(sqlite3.connect(self.folder.journal_file)) as journal, journal:
            journal.execute("DELETE FROM states")
        for file in self.folder.path.glob("journal.*.state"):
            file.unlink()

    def child(self, part: str) -> dict[str, float]:
        """What a process says that does this part."""
        return dict(json.loads(_module(part, str(self.folder.path)).splitlines()[-1]))

    def resumed(self) -> dict[str, float]:
        """`vcdl resume` up to its first update."""
        last = _last_update(self.folder)
        size = self.folder.journal_file.stat().st_size
        command = [sys.executable, "-m", "vcdl", "resume", str(self.folder.path)]
        began_s = time.monotonic()
        with (self.folder.path / "resume.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            while _last_update(self.folder) == last:
                if process.poll() is not None or time.monotonic() > began_s + _TIMEOUT_S:
                    raise SystemExit((self.folder.path / "resume.log").read_text())
                time.sleep(0.05)
            wall_s = time.monotonic() - began_s
            return {"s": _used_s(process.pid), "wall s": wall_s, "MB": _most_mb(process.pid)} | {
                "read": _read_bytes(process.pid) / size
            }
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _module(part: str, argument: str) -> str:
    command = [sys.executable, "-m", "benchmarks.bench_growth", "--child", part, argument]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _make(arguments: RunFolder) -> None:
    path, events, shards, open_workunits = json.loads(str(arguments.path))
    folder, count = RunFolder(Path(path)), int(events) // 3
    _prepare(folder, int(shards), count)
    _fill_journal(folder, count, int(shards), int(open_workunits))
    _fill_store(folder, count, int(shards))


def _prepare(folder: RunFolder, shards: int, count: int) -> None:
    from vcdl.job import Job
    from vcdl.journal.observer import RunObserver
    from vcdl.loop.preparation import prepare
    from vcdl.run.frozen_job import freeze

    folder.create()
    random, size = np.random.default_rng(1), 2 * shards
    x, y = random.random((size, 4), np.float32), np.arange(size) % 2
    np.savez(folder.path / "data.npz", x_train=x, y_train=y, x_val=x[:100], y_val=y[:100])
    job = {
        "name": "bench",
        "model": {"builtin": {"name": "mlp", "units": [4]}},
        "data": {"npz": str(folder.path / "data.npz"), "shards": shards},
        "stop": {"epochs": count // shards + 10},
        "training": {"batch_size": 2},
        "grid": {"workers": 1},
    }
    prepare(folder, freeze(Job.model_validate(job), folder), RunObserver())


def _fill_journal(folder: RunFolder, count: int, shards: int, open_workunits: int) -> None:
    """What a run leaves that was killed when its kept states were as far behind as they ever are."""
    journal = Journal.at(folder.journal_file, clock=lambda: _BEGAN_S)
    journal.append(RunStarted(resumed=False))
    behind = max(0, count - _BEHIND // 3)
    batch: list[Event] = []
    for event in subtasks(count, shards):
        batch.append(event)
        is_due = isinstance(event, UpdateApplied) and event.version == behind
        if len(batch) >= _BATCH or is_due:
            journal.append(*batch)
            batch.clear()
        if is_due:
            journal.append(*_opened(count, behind, shards, open_workunits))
            _keep_states(folder, journal)
    journal.append(*batch)
    journal.close()


def _opened(count: int, version: int, shards: int, open_workunits: int) -> Iterator[Event]:
    for number in range(count, count + open_workunits):
        epoch, shard = divmod(number, shards)
        yield WorkunitCreated(f"bench_e{epoch + 1:04d}_s{shard:03d}_a0_v{version:06d}")


def _keep_states(folder: RunFolder, journal: Journal) -> None:
    from tests.memory_grid import MemoryGrid
    from vcdl.loop.work_generator import WorkGenerator
    from vcdl.run.run import Run

    run = Run.open(folder)
    store, grid = run.store(), MemoryGrid(folder.uploads, run.layout.fingerprint)
    generator = WorkGenerator(run, Coordinator(Plan.of(run)), journal, run.snapshots(store), grid)
    generator.begin()
    generator.keep_state(at_once=True)


def _fill_store(folder: RunFolder, count: int, shards: int) -> None:
    from vcdl.run.run import Run
    from vcdl.stores.base import Applied
    from vcdl.stores.commit_log import CommitLog

    run = Run.open(folder)
    store = run.store()
    log = CommitLog(next(folder.store.rglob("commits.log")))
    log.catch_up()
    sums = log.checksums or ("", "")
    for first in range(0, count, _BATCH):
        records = []
        for version in range(first + 1, min(first + _BATCH, count) + 1):
            subtask = f"e{(version - 1) // shards + 1:04d}_s{(version - 1) % shards:03d}"
            workunit = f"bench_{subtask}_a0_v{max(0, version - 5):06d}"
            records.append(Applied(subtask, workunit, version, 4, 0.05))
        for record in records:
            log.append(record.version, log.slot, sums, [record])
    vector = store.read()[1]
    for kept in {count, max(0, count - _BEHIND // 3), *range(shards, count + 1, shards)}:
        run.snapshots(store).keep(kept, vector)
    _write_both_slots(run, vector)


def _write_both_slots(run: Any, vector: Any) -> None:
    from vcdl.stores.slots import WeightSlots

    whole = run.state.initial(vector)
    with WeightSlots(next(run.folder.store.rglob("weights.bin")), whole.size).opened() as slots:
        for slot in (0, 1):
            slots.write(slot, 0, whole)


def _last_update(folder: RunFolder) -> int:
    import sqlite3

    journal = sqlite3.connect(f"{folder.journal_file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        query = "SELECT id FROM events WHERE kind = 'update_applied' ORDER BY id DESC LIMIT 1"
        return int(next(journal.execute(query), (0,))[0])
    finally:
        journal.close()


# -- the children


def _status(folder: RunFolder) -> None:
    from vcdl.commands.status import status

    sys.stdout, shown = sys.stderr, sys.stdout
    status(folder.path)
    sys.stdout = shown
    _say(time.process_time(), folder)


def _catch_up(folder: RunFolder) -> None:
    """A parameter server, from its beginning to its first look at the uploads."""
    from vcdl.local.upload_folder import UploadFolder
    from vcdl.loop.parameter_server import ParameterServer
    from vcdl.run.run import Run

    run = Run.open(folder)
    server = ParameterServer.of(run, run.journal(), UploadFolder(folder))
    server.catch_up()
    _say(time.process_time(), folder)


def _say(used_s: float, folder: RunFolder) -> None:
    read = _read_bytes(os.getpid()) / folder.journal_file.stat().st_size
    print(json.dumps({"s": used_s, "MB": _most_mb(os.getpid()), "read": read}))


_CHILDREN = {"make": _make, "status": _status, "catch_up": _catch_up}


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def _most_mb(pid: int) -> float:
    """The most memory a process has had; getrusage would count its parent's, too."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# -- the display


def _redraw(updates: int) -> dict[str, float]:
    import io

    from rich.console import Console

    from vcdl.journal.observer import RunningTask
    from vcdl.report.display import LiveDisplay
    from vcdl.report.progress import RunGoal

    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    live = LiveDisplay(RunGoal("bench", 2 * updates // 100 + 2, 100), console, clock=lambda: _BEGAN_S + updates)
    live.events([Recorded(1, _BEGAN_S, RunStarted(resumed=False))])
    for number, event in enumerate(subtasks(updates, 100)):
        live.events([Recorded(number + 2, _BEGAN_S + number / 4, event)])
    live.tasks([RunningTask(f"bench_e0001_s{n:03d}_a0_v000000", f"host-{n}", 0.5, _BEGAN_S) for n in range(8)], 8)
    times = []
    for _ in range(20):
        began_s = time.process_time()
        console.print(live.render())
        times.append(time.process_time() - began_s)
    return {"ms": 1e3 * float(np.median(times))}


if __name__ == "__main__":
    main()
