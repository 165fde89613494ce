"""Simulate a run without weights, for `vcdl simulate --training none` and for forecasts.

It has the coordinator of every run, over the same virtual grid as a simulation with training.

A run with weights keeps a store, snapshots and uploads, and may be killed between any two steps. Here only times are
kept: each action of the coordinator becomes an event at once, and a killed run starts again from its beginning. The
order of the steps is that of `Loop.step`, so that clients get the same work as with training.
"""

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

from vcdl.errors import GridError
from vcdl.job import Job
from vcdl.job.transport import TransportSettings
from vcdl.job.trust import TrustSettings
from vcdl.job.update import RULES
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunFinished,
    RunStarted,
    StopDecided,
    StopReason,
    UpdateApplied,
    VersionEvaluated,
    WeightsPublished,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.loop.coordinator import (
    Action,
    CloseEpoch,
    Coordinator,
    Create,
    Evaluate,
    EvaluateNewest,
    Finish,
    Publish,
    Stop,
)
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.loop.plan import Plan
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.run.kind import SIMULATED
from vcdl.run.prepared import Prepared
from vcdl.run.reading import events_of, read_report
from vcdl.run.run import Run
from vcdl.run.staging import Staged, Uploaded, stage
from vcdl.run.store_claim import OWN_FOLDER
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.times_report import TimesReport
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_run import publishing, queue_ahead
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.layout import Layout
from vcdl.wire.workunit import Normalisation, WorkunitName

_SAMPLES = 1000
"""Samples of a shard. No shard exists, so any number serves."""
_AT_ONCE = 1000
"""Events written to the journal in one transaction: alone, each would take longer than simulating it."""


class NoWork:
    """Produces uploads of clients that train nothing (`ClientWork`): no file, only sizes and times."""

    remembers = False

    def __init__(self, bytes_down: int = 0, bytes_up: int = 0) -> None:
        self._bytes_down, self._bytes_up = bytes_down, bytes_up
        self.train_s: dict[str, float] = {}
        """Workunit → training seconds of its upload."""
        self.started: dict[str, tuple[int, float]] = {}
        """Workunit → the version that its client started from, and the fraction that it trains."""

    def begin(self, staged: Staged, client: int, due_s: float, fraction: float = 1.0) -> None:
        base_version = staged.workunit.base_version if staged.newest is None else staged.newest[0]
        self.started[staged.workunit.name] = base_version, fraction

    def upload(self, staged: Staged, client: int, train_s: float) -> Outcome:
        self.train_s[staged.workunit.name] = train_s
        return Uploaded(staged.workunit.name, Path(), self._bytes_up)

    def bytes_down(self, staged: Staged, client: int) -> int:
        return self._bytes_down

    def done(self, workunit: str, version: int | None) -> None:
        self.train_s.pop(workunit, None)
        self.started.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self.done(workunit, None)


class WeightlessRun:
    """One run of a job on simulated clients without training. Call `reason` or `wall_s` once."""

    def __init__(
        self,
        job: Job,
        fleet: ClientFleet,
        work: NoWork,
        folder: RunFolder | None = None,
        record: Callable[[Recorded], object] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            job: The job. Its targets and its patience are ignored.
            fleet: The clients.
            work: Makes the clients' uploads.
            folder: A run's folder, in which `vcdl stop` leaves its request; nothing else of it is used.
            record: Called with each event, or None. Without it no weights are published, which changes the staleness of
                updates, but no time.
        """
        self._run = run = _without_weights(folder or RunFolder(Path()), job)
        self._work = work
        self._record = record
        # Published weights change staleness and no time. A forecast needs times alone, and saves these events.
        self._plan = replace(Plan.of(run), publishing=publishing(job, fleet) if record is not None else None)
        self._time = VirtualTime()
        self.clients = Clients(fleet)
        self._grid = VirtualGrid(self.clients, self._time, work, queue_ahead(job), job.late_after)
        self.times = self._grid.times
        """The clients' slot times so far."""
        self._coordinator = Coordinator(self._plan)
        # Made once: building a workunit anew takes longer than simulating it.
        self._model = stage(run, WorkunitName(job.name, 1, 0, 0, 0), 1.0)
        """A workunit of the job; the others differ in their numbers."""
        self._ids = count(1)
        self._version = 0
        self._wanted: list[EvaluationWanted] = []

    def reason(self, is_asked_to_stop: Callable[[], bool] = lambda: False) -> StopReason | None:
        """Run the job and return why it ended, or None if `is_asked_to_stop` returned true.

        Raises:
            GridError: A workunit cannot be simulated.
        """
        monitor, trial = self._run.job.monitor, self._run.prepared.rate_trial
        limit_s = math.inf if self._plan.wall_time_s is None else self._plan.wall_time_s
        history = self._coordinator.history
        self._tell(RunStarted(False, monitor.name, monitor.mode, trial.value))
        while True:
            while self._step() or self._measure():
                pass
            if history.finished and history.stop is not None:
                return StopReason(history.stop.reason)
            if is_asked_to_stop():
                return None
            # Without an event nothing can ever happen again: an endless loop would hide the fault.
            if not self._time.advance(limit_s):
                raise GridError("no client has anything to do and the job is not finished: this is a bug in vcdl")

    def wall_s(self) -> float:
        """Run the job and return its virtual seconds; infinite if it ends because a subtask kept failing."""
        return math.inf if self.reason() is StopReason.SUBTASK_FAILED else self._time.now_s()

    def _tell(self, *events: Event) -> None:
        """Apply events to the coordinator's state at the present virtual time, and pass them to `record`."""
        for event in events:
            recorded = Recorded(next(self._ids), self._time.now_s(), event)
            self._coordinator.state.follow(recorded)
            if self._record is not None:
                self._record(recorded)

    def _step(self) -> bool:
        """Handle outcomes and carry out the actions that are due, as Loop.step does; return whether to step again."""
        history, wanted = self._coordinator.history, 0
        if history.stop is None:
            # Failures before uploads, as the assimilator does it.
            for outcome in sorted(self._grid.claim(), key=lambda one: isinstance(one, Uploaded)):
                self._take(outcome)
        while actions := self._coordinator.actions(self._time.now_s(), wanted := self._target_open_workunits()):
            self._create([action for action in actions if isinstance(action, Create)])
            for action in actions:
                self._carry_out(action)
        if history.stop is None:
            self._grid.replicate_late(queue_empty=len(history.open) < wanted)
        sent = self._grid.sent()
        self._tell(*sent)
        return bool(sent)

    def _target_open_workunits(self) -> int:
        """Return how many workunits should be open now, including the ramp-up of the job."""
        return self._grid.target_open_workunits() - self._coordinator.slots_to_leave_free(self._grid.slots())

    def _measure(self) -> bool:
        """Answer each request for an evaluation; return whether there was any."""
        wanted, self._wanted = self._wanted, []
        self._tell(
            *(VersionEvaluated(one.version, one.epoch, one.split, 0, math.nan, evaluation_s=0.0) for one in wanted)
        )
        return bool(wanted)

    def _take(self, outcome: Outcome) -> None:
        """Record an upload as applied, or a failure, and forget it in the grid."""
        name = outcome.workunit
        if isinstance(outcome, GaveUp):
            self._tell(WorkunitFailed(name, outcome.reason))
        else:
            # One server, so versions are counted here.
            self._version += 1
            base_version, fraction = self._work.started[name]
            came_s = self._time.now_s() if outcome.received_s is None else outcome.received_s
            self._tell(
                UpdateApplied(
                    workunit=name,
                    version=self._version,
                    base_version=base_version,
                    staleness=self._version - 1 - base_version,
                    weight=0.0,
                    samples=round(fraction * _SAMPLES),
                    fraction=fraction,
                    train_s=self._work.train_s[name],
                    loss=None,
                    bytes_up=outcome.size_bytes,
                    host=outcome.host,
                    backend="unknown",
                    waited_s=round(self._time.now_s() - came_s, 6),
                    fold_s=0.0,
                )
            )
        self._grid.done(name)

    def _create(self, creations: Sequence[Create]) -> None:
        """Create workunits, and submit them to the grid."""
        if not creations:
            return
        coordinator, events, items = self._coordinator, [], []
        context = coordinator.history.creation_context(len(creations))
        ends_by_time = self._run.job.training.target_s is not None
        for create in creations:
            workunit = replace(
                self._model.workunit,
                epoch=create.epoch,
                shard=create.shard,
                attempt=create.attempt,
                base_version=self._version if create.base_version is None else create.base_version,
            )
            rate = coordinator.rate(create.epoch, create.shard, context)
            begins = coordinator.history.trained[create.shard] if ends_by_time else None
            items.append(replace(self._model, workunit=workunit))
            events.append(WorkunitCreated(workunit.name, context.open, rate, begins))
        self._tell(*events)
        self._grid.submit(items)

    def _carry_out(self, action: Action) -> None:
        """Turn an action of the coordinator into its event at once."""
        match action:
            case CloseEpoch(epoch):
                self._tell(EpochClosed(epoch, self._version))
            case Evaluate(version, epoch, split):
                self._want(EvaluationWanted(version, epoch, split))
            case EvaluateNewest():
                self._want(EvaluationWanted(self._version, 0, VALIDATION))
            case Publish():
                self._tell(WeightsPublished(self._version))
                self._grid.publish(self._version, Path())
            case Stop(reason):
                self._grid.cancel(set(self._coordinator.history.open))
                self._tell(StopDecided(reason.value, self._version))
            case Finish():
                self._tell(RunFinished())
            case _:
                pass  # rollbacks are never due, because clients are trusted

    def _want(self, event: EvaluationWanted) -> None:
        self._wanted.append(event)
        self._tell(event)


def _without_weights(folder: RunFolder, job: Job) -> Run:
    """Return a run of a job in which everything that depends on weights is switched off. No file is read or written."""
    changes = {
        "update": RULES["vc_asgd"](),  # a rule that reads no file of weights
        # Sizes come from the caller, who knows the job's codecs.
        "transport": TransportSettings(),
        # Bounds, verification and rollbacks judge weights.
        "trust": TrustSettings(kind="own"),
        "pacing": job.pacing.model_copy(update={"grows_over": job.grows_over}),  # none in a job for strangers
        "stop": job.stop.model_copy(update={"target_accuracy": None, "target": None, "patience": None}),
        # There is nothing to evaluate, and each evaluation would be an event of its own.
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
    return Run(folder, job.model_copy(update=changes), prepared)


def simulated_s(job: Job, fleet: ClientFleet, bytes_down: int = 0, bytes_up: int = 0) -> float:
    """Simulate a job without training, and return its virtual seconds; infinite if a subtask kept failing.

    Args:
        job: The job. Its targets and its patience are ignored.
        fleet: The clients.
        bytes_down: Bytes of a subtask's download, which take time if the clients' links are simulated.
        bytes_up: Bytes of its upload.
    """
    return WeightlessRun(job.trusting(SIMULATED.trust), fleet, NoWork(bytes_down, bytes_up)).wall_s()


def run_times(folder: RunFolder, job: Job, fleet: ClientFleet, observer: RunObserver) -> TimesReport | None:
    """Simulate the job of a new folder without training, write its journal, and return the figures.

    The caller holds the folder's RunLock. The result is None if `vcdl stop` paused the run.
    """
    shielded, unwritten = ShieldedObserver(observer), list[Recorded]()
    with closing(Journal.at(folder.journal_file)) as journal:

        def write() -> None:
            journal.append_at([(recorded.time_s, recorded.event) for recorded in unwritten])
            shielded.events(tuple(unwritten))
            unwritten.clear()

        def record(recorded: Recorded) -> None:
            unwritten.append(recorded)
            if len(unwritten) >= _AT_ONCE:
                write()

        run = WeightlessRun(job, fleet, NoWork(), folder, record)
        reason = run.reason(folder.stop_request.exists)
        write()
    if reason is None:
        return None
    staleness = (update.staleness for update in events_of(folder, UpdateApplied))
    report = read_report(folder)
    by_hour = () if fleet.population is None else run.clients.hosts_by_hour(report.wall_s)
    return TimesReport.of(fleet, report, run.times, staleness, by_hour)
