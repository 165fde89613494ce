"""A job in virtual time without any training: when subtasks come back, wait, go stale and are lost, and no weights.

Coordinator, grid, clients and clock are those of every simulated run. Nothing is measured, so the job runs all its
epochs, or up to its time limit.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path

from vcdl.errors import GridError, JobError
from vcdl.job import Job
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunFinished,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.journal import Journal
from vcdl.loop.coordinator import Action, CloseEpoch, Coordinator, Create, Evaluate, Finish, Stop
from vcdl.loop.grid import GaveUp, Outcome, Staged, Uploaded
from vcdl.loop.plan import Plan
from vcdl.report.observer import RunObserver, ShieldedObserver
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.times_report import TimesReport
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.workunit import Named, Training, Workunit, WorkunitName

_WRITTEN_AT_ONCE = 5000
"""Events that go into the journal together: a run that is killed starts again anyway."""
_NOTHING = Path()
_NO_TRAINING = Training(Named("none"), 0.0, 1, 1, Named("none"))


class NoWork:
    """Clients that bring nothing but the time that they took."""

    def __init__(self) -> None:
        self.train_s: dict[str, float] = {}
        """Training time of the uploads that have come, by workunit."""

    def begin(self, staged: Staged, client: int, due_s: float) -> None:
        return

    def upload(self, staged: Staged, client: int, train_s: float) -> Outcome:
        self.train_s[staged.workunit.name] = train_s
        return Uploaded(staged.workunit.name, _NOTHING, 0)

    def bytes_down(self, staged: Staged, client: int) -> int:
        return 0

    def done(self, workunit: str, version: int | None) -> None:
        self.train_s.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self.train_s.pop(workunit, None)


class TimesRun:
    """Runs a job of a new folder; the caller holds the folder's RunLock."""

    def __init__(
        self, folder: RunFolder, job: Job, fleet: ClientFleet, journal: Journal, observer: RunObserver
    ) -> None:
        """Raises JobError when clients are hostile: what they upload is weights."""
        if fleet.hostile:
            raise JobError("hostile: their uploads are weights, and with --training none there are none; leave it out")
        ahead = job.pacing.queue_ahead
        self._fleet = fleet
        self._stop_request = folder.stop_request
        self._journal = journal
        self._observer = ShieldedObserver(observer)
        self._time = VirtualTime()
        self._work = NoWork()
        self._grid = VirtualGrid(fleet, self._time, self._work, 0 if ahead == "auto" else ahead)
        self._plan = _plan(job)
        self._coordinator = Coordinator(self._plan)
        self._version = 0
        self._events = 0
        self._unwritten: list[Recorded] = []
        self._report = TimesReport()

    def run(self) -> TimesReport | None:
        """Run the job to its end; None: `vcdl stop` has asked to stop. Raises JournalError."""
        self._tell(RunStarted(resumed=False))
        limit_s = self._plan.wall_time_s or math.inf
        while not self._coordinator.finished:
            self._act()
            if self._stop_request.exists():
                return None
            if not self._coordinator.finished and not self._time.advance(limit_s):
                raise GridError("no client has anything to do and the job is not finished: this is a bug in vcdl")
        self._write()
        self._report.complete(self._fleet, self._coordinator.history, self._grid.times)
        return self._report

    def _act(self) -> None:
        """Do all that is to be done at this moment, while the clock stands."""
        while True:
            outcomes = self._grid.claim()
            for outcome in outcomes:
                self._assimilate(outcome)
            actions = self._coordinator.actions(self._time.now_s(), wanted := self._grid.open_wanted())
            self._carry_out(actions)
            self._grid.replicate_late(queue_empty=len(self._coordinator.open) < wanted)
            self._tell(*self._grid.sent())
            if not outcomes and not actions:
                return

    def _assimilate(self, outcome: Outcome) -> None:
        workunit, version = outcome.workunit, None
        name = WorkunitName.parse(workunit)
        if isinstance(outcome, GaveUp):
            self._tell(WorkunitFailed(workunit, outcome.reason))
        elif self._coordinator.history.is_applied(name.epoch, name.shard):
            self._tell(UpdateSuperseded(workunit, 0, outcome.host))
        else:
            staleness = self._version - name.base_version
            self._report.staleness.append(staleness)
            self._version = version = self._version + 1
            self._tell(self._applied(outcome, version, name.base_version, staleness))
        self._grid.done(workunit, version)

    def _applied(self, upload: Uploaded, version: int, base_version: int, staleness: int) -> UpdateApplied:
        return UpdateApplied(
            workunit=upload.workunit,
            version=version,
            base_version=base_version,
            staleness=staleness,
            weight=0.0,
            samples=0,
            fraction=1.0,
            train_s=self._work.train_s[upload.workunit],
            loss=None,
            bytes_up=0,
            host=upload.host,
        )

    def _carry_out(self, actions: Sequence[Action]) -> None:
        creations = [action for action in actions if isinstance(action, Create)]
        staged = [Staged(self._workunit(creation), _NOTHING, _NOTHING, _NOTHING) for creation in creations]
        is_open = len(self._coordinator.open) + len(staged)
        self._tell(*(WorkunitCreated(item.workunit.name, is_open) for item in staged))
        self._grid.submit(staged)
        for action in actions:
            match action:
                case CloseEpoch(epoch):
                    self._tell(EpochClosed(epoch, self._version))
                case Evaluate(version, epoch, split):
                    self._tell(EvaluationWanted(version, epoch, split), _unmeasured(version, epoch, split))
                case Stop(reason):
                    self._grid.cancel(set(self._coordinator.open))
                    self._tell(StopDecided(reason.value, self._version))
                case Finish():
                    self._tell(RunFinished())
                case _:
                    pass

    def _workunit(self, creation: Create) -> Workunit:
        base_version = self._version if creation.base_version is None else creation.base_version
        return Workunit(self._plan.job, creation.epoch, creation.shard, creation.attempt, base_version, 0, _NO_TRAINING)

    def _tell(self, *events: Event) -> None:
        for event in events:
            self._events += 1
            recorded = Recorded(self._events, self._time.now_s(), event)
            self._coordinator.follow(recorded)
            self._unwritten.append(recorded)
        if len(self._unwritten) >= _WRITTEN_AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._journal.append_at([(recorded.time_s, recorded.event) for recorded in self._unwritten])
        self._observer.events(self._unwritten)
        self._unwritten = []


def _plan(job: Job) -> Plan:
    """The job's plan without what depends on measures."""
    return Plan(
        job=job.name,
        seed=job.seed,
        shards=job.data.shards,
        rolling=job.pacing.kind == "rolling",
        validate_every=EVERY_EPOCH,
        has_test=False,
        epochs=job.stop.epochs,
        target_accuracy=None,
        wall_time_s=job.stop.wall_time_s,
        patience_epochs=None,
        tries=job.grid.tries,
    )


def _unmeasured(version: int, epoch: int, split: str) -> VersionEvaluated:
    """The event that ends an evaluation, without a measure."""
    return VersionEvaluated(version, epoch, split, samples=0, loss=math.nan, evaluation_s=0.0)
