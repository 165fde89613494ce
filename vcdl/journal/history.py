"""How far a job is, computed from its journal's events: the coordinator decides from it, and the reports show it.

A `JobHistory` applies the journal event by event, and contains nothing that does not follow from the events. It has no
plan, no I/O and no clock. Each event takes the same time, however many workunits are open and however long the job has
run. Its size grows with the open workunits and the epochs, not with the updates.

Active time is the time in which a process drove the job, over all its sessions, without the pauses between them.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Self, TypeVar

from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    HostConvicted,
    Recorded,
    RolledBack,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    StopDecided,
    StoreRestored,
    SubtaskTried,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WeightsPublished,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.monitor import EpochDetail, LossSum, Monitor
from vcdl.journal.totals import Totals
from vcdl.wire.workunit import WorkunitName

E = TypeVar("E", bound=Event)

_REMEMBERED = 1000
"""Versions before the newest scored end of an epoch whose evaluations are kept, because rows may come out of order."""


@dataclass(frozen=True)
class Timed(Generic[E]):
    """An event with the time at which it was recorded."""

    time_s: float
    """Unix time."""
    wall_s: float
    """Active seconds of the job at that time."""
    event: E


@dataclass(frozen=True)
class CreationContext:
    """The state of the job when a workunit is created, from which the workunit's learning rate is computed."""

    active_clients: int
    """Open workunits that a client has started."""
    open: int
    """Open workunits, including all that are created together."""
    made: int
    """Subtasks for which a workunit was created, each counted once."""
    again: int = 0
    """Applied subtasks to be reissued: their update was a lie, was dropped with one, or covered only a part."""


@dataclass
class JobHistory:
    """The state of a job according to its journal: pass each event to `follow` in order, then read the fields.

    The same events always give the same state.
    """

    version: int = 0
    """The newest version of the weights that an update, a rollback or a restored store has made."""
    made: int = 0
    """Subtasks for which a workunit was created, each counted once."""
    again: int = 0
    """Applied subtasks still to be reissued: their update was a lie, was dropped with one, or covered only a part."""
    open: dict[str, WorkunitName] = field(default_factory=dict)
    """Name → its parts, for each workunit that was created and has not ended."""
    created: dict[str, WorkunitCreated] = field(default_factory=dict)
    """Name → the event that announced it, for each open workunit, oldest first."""
    trained: Counter[int] = field(default_factory=Counter)
    """Shard → its samples in all updates, over all epochs and passes."""
    at_work: set[str] = field(default_factory=set)
    """Open workunits that a client has started."""
    last_sent_s: float = 0.0
    """Unix time at which the last workunit was sent; 0 before the first one."""
    bases: dict[int, int] = field(default_factory=dict)
    """Version → how many open workunits start from it."""
    published: dict[int, float] = field(default_factory=dict)
    """Version → Unix time at which it was offered to clients, for those from which an open workunit may start."""
    applied_by_epoch: Counter[int] = field(default_factory=Counter)
    """Epoch → number of its subtasks with an applied update."""
    closed: dict[int, Timed[EpochClosed]] = field(default_factory=dict)
    """Epoch → the event that closed it: all its subtasks were applied."""
    epochs: list[EpochDetail] = field(default_factory=list)
    """Epochs that are closed and evaluated, in order."""
    best_epoch: EpochDetail | None = None
    """The epoch with the best mean of the monitor, the first one if several are equal, or None if no epoch is evaluated
    yet."""
    monitor: Monitor = field(default_factory=Monitor)
    """The metric by which the job is judged."""
    train_losses: dict[int, LossSum] = field(default_factory=dict)
    """Epoch that is not in `epochs` yet → the training losses that clients reported in it."""
    wanted: dict[tuple[int, str], EvaluationWanted] = field(default_factory=dict)
    """(version, split) → an evaluation that was requested and is not done."""
    measured: dict[tuple[int, str], VersionEvaluated] = field(default_factory=dict)
    """(version, split) → its evaluation. Validations of versions far behind the newest scored epoch are removed."""
    totals: Totals = field(default_factory=Totals)
    sessions: int = 0
    """Number of sessions: how often a process started to drive the job."""
    paused: RunPaused | None = None
    """The pause that ended the last session, or None if there was none or the job has ended."""
    rollbacks: list[RolledBack] = field(default_factory=list)
    stop: StopDecided | None = None
    """The decision that ended the job, or None while updates are applied."""
    finished: bool = False
    """Whether all evaluations after the job's end are done."""
    _is_told: bool = False
    """Whether the start of a session names the monitor. Otherwise the first evaluation decides."""
    _forgotten: int = -1
    """The newest version whose validation was removed from `measured`, or -1."""
    _shards: dict[int, set[int]] = field(default_factory=dict)
    """Epoch that is not closed → shards whose update was applied."""
    _open_attempts: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    """Subtask → its open workunits; more than one when a client that was given up may still upload."""
    _validations: dict[int, list[int]] = field(default_factory=dict)
    """Epoch that is not in `epochs` yet → versions whose validation was requested for it."""
    _missing: Counter[int] = field(default_factory=Counter)
    """Epoch → number of these versions that are not evaluated."""
    _earlier_s: float = 0.0
    """Active seconds of the sessions before this one."""
    _started_s: float | None = None
    """Unix time at which the present session began, or None if the last one has ended."""
    _last_s: float = 0.0
    """Unix time of the last event; 0 before the first one."""

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """Return the history of a sequence of events."""
        history = cls()
        for recorded in events:
            history.follow(recorded)
        return history

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
        time_s = max(recorded.time_s, self._last_s)  # two processes may write in another order than they read the clock
        match event := recorded.event:
            case WorkunitCreated():
                self._create(event)
            case WorkunitSent():
                self.last_sent_s = max(self.last_sent_s, time_s)
                if event.workunit in self.open:
                    self.at_work.add(event.workunit)
            case UpdateApplied():
                self._apply(event)
            case UpdateRefused() | UpdateSuperseded() | WorkunitFailed() | WorkunitCancelled():
                self._end(event.workunit)
            case SubtaskTried() if event.error:
                self._end(event.workunit)
            case WeightsPublished():
                self._publish(event.version, time_s)
            case EvaluationWanted():
                self._announce(event)
            case VersionEvaluated():
                self._measure(event)
            case EpochClosed():
                self.closed[event.epoch] = Timed(time_s, self.wall_s_at(time_s), event)
                self._shards.pop(event.epoch, None)
                self._score_epochs()
            case RunStarted():
                self._begin_session(time_s)
                self.sessions += 1
                self.paused = None
                self._judge_by(Monitor.of_session(event))
            case RunPaused():
                self._end_session(time_s)
                self.paused = event
            case RolledBack():
                self._roll_back(event)
            case StoreRestored():
                self.version = max(self.version, event.version)
            case HostConvicted():
                self.again += len(event.again)
            case StopDecided():
                self.stop = event
                for workunit in list(self.open):
                    self._end(workunit)
            case RunFinished():
                self._end_session(time_s)
                self.finished = True
            case RunReopened():
                self._begin_session(time_s)
                self.stop, self.finished = None, False
        self.totals.follow(recorded.event, self.wall_s_at(time_s))
        self._last_s = time_s

    def published_since(self, time_s: float) -> set[int]:
        """Return the versions that clients could be given as the newest at the Unix time `time_s` or later."""
        until_s = (*islice(self.published.values(), 1, None), math.inf)
        return {version for version, end_s in zip(self.published, until_s, strict=False) if end_s >= time_s}

    @property
    def last_s(self) -> float:
        """Unix time of the last event."""
        return self._last_s

    @property
    def wall_s(self) -> float:
        """Active seconds up to the last event."""
        return self.wall_s_at(self._last_s)

    def wall_s_at(self, now_s: float) -> float:
        """Return the active seconds of the job at a Unix time, as if an unended session continued until then."""
        return self._earlier_s + (now_s - self._started_s if self._started_s is not None else 0.0)

    def creation_context(self, together: int = 1) -> CreationContext:
        """Return the state of the job for workunits that are created now, `together` in number."""
        return CreationContext(len(self.at_work), len(self.open) + together, self.made, self.again)

    def is_applied(self, epoch: int, shard: int) -> bool:
        """Return whether an update of this shard in this epoch was applied."""
        return epoch in self.closed or shard in self._shards.get(epoch, ())

    def end_of(self, epoch: int) -> int:
        """Return the version at an epoch's end, or 0 if the epoch is not closed.

        If rollbacks undid that version, it is the version that the last of them made.
        """
        closed = self.closed.get(epoch)
        version = closed.event.version if closed is not None else 0
        for rolled in self.rollbacks:
            if rolled.undoes(version):
                version = rolled.version
        return version

    def is_announced(self, version: int, split: str) -> bool:
        """Return whether an evaluation is requested or done, also if it is so old that it was removed here."""
        if split == VALIDATION and version <= self._forgotten:
            return True
        return (version, split) in self.wanted or (version, split) in self.measured

    def score(self, epoch: EpochDetail) -> float:
        """Return an epoch's mean, oriented so that larger is better; an epoch that diverged (NaN) scores worst."""
        return self.monitor.score(epoch.mean)

    # -- sessions

    def _begin_session(self, now_s: float) -> None:
        """Begin a session. If the one before was killed, or its job was given up, it lasted until the last event."""
        self._end_session(self._last_s)
        self._started_s = now_s

    def _end_session(self, now_s: float) -> None:
        self._earlier_s, self._started_s = self.wall_s_at(now_s), None

    # -- workunits

    def _create(self, event: WorkunitCreated) -> None:
        """Add a workunit to the open ones, and count its subtask if it is the first attempt."""
        name = WorkunitName.parse(event.workunit)
        self.created[event.workunit] = event
        self.open[event.workunit] = name
        self.bases[name.base_version] = self.bases.get(name.base_version, 0) + 1
        self._open_attempts.setdefault((name.epoch, name.shard), []).append(event.workunit)
        self.made += name.attempt == 0
        self.again -= name.begins_turn

    def _end(self, workunit: str) -> None:
        """Remove a workunit from the open ones, if it is among them."""
        name = self.open.pop(workunit, None)
        if name is None:
            return
        del self.created[workunit]
        self.at_work.discard(workunit)
        self.bases[name.base_version] -= 1
        if not self.bases[name.base_version]:
            del self.bases[name.base_version]
        subtask = name.epoch, name.shard
        self._open_attempts[subtask].remove(workunit)
        if not self._open_attempts[subtask]:
            del self._open_attempts[subtask]

    def _publish(self, version: int, time_s: float) -> None:
        """Record a published version, and forget those that no client can start from any more."""
        first = min(self.bases, default=version)
        while self.published and (oldest := next(iter(self.published))) < first:
            del self.published[oldest]  # versions are published in their order, so the others stay
        self.published[version] = time_s

    def _apply(self, event: UpdateApplied) -> None:
        """Count an applied update, and end all open workunits of its subtask."""
        name = self.open.get(event.workunit) or WorkunitName.parse(event.workunit)
        self.trained[name.shard] += event.samples
        self.version = max(self.version, event.version)
        if not name.turn:  # a reissued subtask was counted before
            self.applied_by_epoch[name.epoch] += 1
            self._shards.setdefault(name.epoch, set()).add(name.shard)
        self.again += event.is_part
        if event.loss is not None:
            told = self.train_losses.get(name.epoch, LossSum())
            self.train_losses[name.epoch] = told.plus(event.loss, event.samples)
        for workunit in list(self._open_attempts.get((name.epoch, name.shard), ())):
            self._end(workunit)  # uploads of other attempts will be superseded

    def _roll_back(self, event: RolledBack) -> None:
        """Apply a rollback: end the open workunits that started from weights with a dropped update."""
        self.version = max(self.version, event.version)
        self.rollbacks.append(event)
        self.again += len(event.again)
        for workunit in event.overtaken(self.open):
            self._end(workunit)

    # -- evaluations

    def _judge_by(self, monitor: Monitor | None) -> None:
        """Use the monitor that a session names, unless epochs were already scored by another one."""
        if monitor is not None and not self.epochs:
            self.monitor, self._is_told = monitor, True

    def _announce(self, event: EvaluationWanted) -> None:
        """Record a requested evaluation; its epoch is scored only once it is done."""
        if (event.version, event.split) in self.measured:
            return
        self.wanted[event.version, event.split] = event
        if event.split == VALIDATION:
            self._validations.setdefault(event.epoch, []).append(event.version)
            self._missing[event.epoch] += 1

    def _measure(self, event: VersionEvaluated) -> None:
        """Record an evaluation, and score the epochs that waited for it."""
        if not self.measured and not self._is_told:
            self.monitor = Monitor.of_first(event)
        self.measured[event.version, event.split] = event
        announced = self.wanted.pop((event.version, event.split), None)
        if event.split == VALIDATION:
            if announced is not None:
                self._missing[announced.epoch] -= 1
            self._score_epochs()

    def _score_epochs(self) -> None:
        """Score epochs in order, as far as all their versions are evaluated.

        An epoch's versions are its end and those that were announced for it. All announcements come before the epoch
        is closed: see Coordinator.actions.
        """
        while (closed := self.closed.get(epoch := len(self.epochs) + 1)) is not None:
            end = closed.event.version
            if self._missing[epoch] or (end, VALIDATION) not in self.measured:
                return
            versions = sorted({*self._validations.pop(epoch, ()), end})
            self._missing.pop(epoch, None)
            detail = self._detail(epoch, closed.wall_s, [self.measured[version, VALIDATION] for version in versions])
            self.epochs.append(detail)
            self._forget(end)
            if self.best_epoch is None or self.score(detail) > self.score(self.best_epoch):
                self.best_epoch = detail

    def _detail(self, epoch: int, wall_s: float, evaluations: list[VersionEvaluated]) -> EpochDetail:
        """Return an epoch's score from the evaluations of its versions, and forget its sum of training losses."""
        values = [self.monitor.value(event) for event in evaluations]
        measures: dict[str, list[float]] = {}
        for event in evaluations:
            for name, value in event.measures.items():
                measures.setdefault(name, []).append(value)
        return EpochDetail(
            epoch=epoch,
            mean=sum(values) / len(values),
            min=min(values),
            max=max(values),
            wall_s=wall_s,
            measures={name: sum(one) / len(one) for name, one in measures.items()},
            train_loss=self.train_losses.pop(epoch, LossSum()).mean,
        )

    def _forget(self, end: int) -> None:
        """Remove validations of versions more than _REMEMBERED before the version `end`, some thousand at a time."""
        if len(self.measured) <= 2 * _REMEMBERED:
            return
        self._forgotten = max(self._forgotten, end - _REMEMBERED)
        needed = {version for versions in self._validations.values() for version in versions}
        self.measured = {
            (version, split): event
            for (version, split), event in self.measured.items()
            if version > self._forgotten or split != VALIDATION or version in needed
        }
