"""A run without weights (`vcdl simulate --training none`): the loop of every run over parts that hold nothing."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vcdl.checks import UploadCheck
from vcdl.errors import folder_errors
from vcdl.job import Job
from vcdl.job.transport import TransportSettings
from vcdl.job.trust import TrustSettings
from vcdl.job.update import RULES
from vcdl.journal.events import EvaluationWanted, Recorded, UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.loop.grid import Outcome
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import Snapshots
from vcdl.run.prepared import Prepared
from vcdl.run.reading import events_of, read_report
from vcdl.run.run import Run
from vcdl.run.staging import Staged, Uploaded
from vcdl.run.store_claim import OWN_FOLDER
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.times_report import TimesReport
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_run import drive, queue_ahead
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.stores import Applied, WeightStore
from vcdl.stores.base import Transaction
from vcdl.stores.change import InMemory
from vcdl.wire.weights import Layout, Vector, write_weights
from vcdl.wire.workunit import Normalisation, UpdateHeader

_NOTHING = np.empty(0, np.float32)
_SAMPLES = 1000
"""Samples of a shard. No shard exists, so any number serves."""


class NoWork:
    """Clients that bring an empty upload, all the same file, and the time that they took."""

    remembers = False

    def __init__(self, upload: Path, bytes_down: int = 0, bytes_up: int = 0) -> None:
        self._upload = upload
        self._bytes_down, self._bytes_up = bytes_down, bytes_up
        self.train_s: dict[str, float] = {}
        """Training time of each upload that arrived, by workunit."""
        self.begun: dict[str, tuple[int, float]] = {}
        """Workunit → the version that its client began with, and the part that it trains."""

    def begin(self, staged: Staged, client: int, due_s: float, fraction: float = 1.0) -> None:
        base_version = staged.workunit.base_version if staged.newest is None else staged.newest[0]
        self.begun[staged.workunit.name] = base_version, fraction

    def upload(self, staged: Staged, client: int, train_s: float) -> Outcome:
        self.train_s[staged.workunit.name] = train_s
        return Uploaded(staged.workunit.name, self._upload, self._bytes_up)

    def bytes_down(self, staged: Staged, client: int) -> int:
        return self._bytes_down

    def done(self, workunit: str, version: int | None) -> None:
        self.train_s.pop(workunit, None)
        self.begun.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self.done(workunit, None)


class NoWeights(WeightStore):
    """A store of no weights, in this process: versions and records."""

    def __init__(self) -> None:
        self._version = 0
        self._records: dict[str, Applied] = {}

    def create(self, vector: Vector) -> None:
        return

    def version(self) -> int:
        return self._version

    def read(self) -> tuple[int, Vector]:
        return self._version, _NOTHING

    def read_whole(self) -> tuple[int, Vector]:
        return self.read()

    def records(self, after_version: int) -> list[Applied]:
        return [record for record in self._records.values() if record.version > after_version]

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        yield _NoTransaction(self)

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of those subtasks that have one."""
        return {subtask: self._records[subtask] for subtask in subtasks if subtask in self._records}

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        """Make version and records; returns the version."""
        self._version = version
        self._records |= {record.subtask: record for record in applied}
        return version

    def drop(self) -> None:
        return

    def close(self) -> None:
        return

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        self._version, self._records = version, {record.subtask: record for record in applied}
        return True


class _NoTransaction(Transaction):
    def __init__(self, store: NoWeights) -> None:
        self.version = store.version()
        self._store = store

    @cached_property
    def working(self) -> InMemory:
        return InMemory(_NOTHING, self._store.state)

    def weights(self) -> Vector:
        return _NOTHING

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        return self._store.find(subtasks)

    def commit(self, version: int, applied: Sequence[Applied]) -> int:
        return self._store.commit(version, applied)


class NoSnapshots(Snapshots):
    """Snapshots of no weights, which need no files."""

    def keep(self, version: int, vector: Vector, *, durable: bool = False) -> None:
        return

    def has(self, version: int) -> bool:
        return True

    def keep_newest(self, *, durable: bool = False) -> int:
        return self.store.version()

    def discard_all_but(self, versions: Collection[int]) -> None:
        return


@dataclass
class NoCheck(UploadCheck):
    """Takes every upload, with what its client would have said."""

    work: NoWork | None = None

    def read_header(self, path: Path, workunit: str) -> UpdateHeader:
        if self.work is None:
            raise ValueError("nobody says what the clients have done: this is a bug in vcdl")
        base_version, fraction = self.work.begun[workunit]
        samples, train_s = round(fraction * _SAMPLES), self.work.train_s[workunit]
        return UpdateHeader(self.job, workunit, base_version, "", samples, fraction, train_s, math.nan)


@dataclass(frozen=True)
class WeightlessRun(Run):
    """A run whose weights are not trained, stored or measured."""

    work: NoWork

    @classmethod
    def of(cls, folder: RunFolder, job: Job, work: NoWork) -> "WeightlessRun":
        """Return the run of a job without what depends on weights."""
        changes = {
            "update": RULES["vc_asgd"](),  # a rule that reads no file of weights
            "transport": TransportSettings(),
            "trust": TrustSettings(kind="own"),
            "stop": job.stop.model_copy(update={"target_accuracy": None, "target": None, "patience": None}),
            "validate_": job.validate_.model_copy(update={"every": "epoch"}),
            "retention": job.retention.model_copy(update={"uploads": "needed"}),
        }
        prepared = Prepared(
            shard_samples=(_SAMPLES,) * job.data.shards,
            has_test=False,
            normalisation=Normalisation(),
            layout=Layout(()),
            initial_norm=0.0,
            store_key=job.name,
            footprint=Footprint(0.0, 0.0, 0),
            own_step=(),
            store=OWN_FOLDER,
        )
        return cls(folder, job.model_copy(update=changes), prepared, work)

    @cached_property
    def _no_weights(self) -> NoWeights:
        store = NoWeights()
        store.state = self.state
        return store

    def store(self, journal: Journal | None = None) -> WeightStore:
        return self._no_weights

    def snapshots(self, store: WeightStore) -> Snapshots:
        return NoSnapshots(self.folder, store, self.name, self.layout)

    def upload_check(self, journal: Journal | None = None, *, is_over: bool = False) -> UploadCheck:
        check = super().upload_check()
        return NoCheck(check.job, check.layout, check.shard_samples, 1, 0.0, work=self.work)


@dataclass(frozen=True)
class Unmeasured:
    """Answers each request for an evaluation, without measuring."""

    journal: Journal

    def measure(self, new: Sequence[Recorded]) -> int:
        wanted = [row.event for row in new if isinstance(row.event, EvaluationWanted)]
        self.journal.append(
            *(
                VersionEvaluated(one.version, one.epoch, one.split, samples=0, loss=math.nan, evaluation_s=0.0)
                for one in wanted
            )
        )
        return len(wanted)


def run_times(folder: RunFolder, job: Job, fleet: ClientFleet, observer: RunObserver) -> TimesReport | None:
    """Run a job of a new, locked folder without training; None: `vcdl stop` has asked to stop."""
    upload = folder.uploads / "nothing.h5"
    with folder_errors(folder.path):
        write_weights(upload, _NOTHING, "{}")
    time, work = VirtualTime(), NoWork(upload)
    clients, run = Clients(fleet), WeightlessRun.of(folder, job, work)
    grid = VirtualGrid(clients, time, work, queue_ahead(job), job.late_after)
    Journal.at(folder.journal_file).close()
    if drive(run, grid, time, Unmeasured, ShieldedObserver(observer), fleet.result_timeout_s) is None:
        return None
    staleness = (update.staleness for update in events_of(folder, UpdateApplied))
    report = read_report(folder)
    by_hour = () if fleet.population is None else clients.hosts_by_hour(report.wall_s)
    return TimesReport.of(fleet, report, grid.times, staleness, by_hour)
