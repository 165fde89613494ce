"""Every figure that is shown of a run, folded from its journal: status, display, summary, plots and TensorBoard read them here.

Times are active time: seconds the job was being run, over all its sessions; the pauses between them are cut out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from vcdl.coordinator import FINAL_SPLITS, VALIDATION, StopReason
from vcdl.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    ResultRefused,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.workunit import WorkunitName

_RECENT_UPDATES = 30
"""Rates are measured over these: long enough to be steady, short enough to show that a run has become slow."""

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class Timed(Generic[E]):
    """An event, when it happened, and the active time at that moment."""

    time_s: float
    """Unix time."""
    wall_s: float
    event: E


@dataclass(frozen=True)
class EpochDetail:
    """An epoch over the evaluations of the versions its updates made: accuracies, or the losses of a regression."""

    epoch: int
    mean: float
    min: float
    max: float
    wall_s: float
    """Active time at which its last shard was applied."""


@dataclass(frozen=True)
class Rates:
    """How fast the run is now."""

    updates_s: float
    """Updates a second."""
    samples_s: float
    """Training samples a second."""


@dataclass
class Report:
    """What a run has done so far; `fold` events in the order of the journal, then read."""

    created: int = 0
    retried: int = 0
    """Workunits that were made because an earlier attempt at the same subtask had failed."""
    failed: int = 0
    refused: int = 0
    superseded: int = 0
    lost: int = 0
    """Of the applied updates, those that another server had overwritten when the last epoch was closed."""
    samples_trained: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    updates: list[Timed[UpdateApplied]] = field(default_factory=list)
    evaluations: list[Timed[VersionEvaluated]] = field(default_factory=list)
    applied_by_epoch: dict[int, int] = field(default_factory=dict)
    closed: dict[int, Timed[EpochClosed]] = field(default_factory=dict)
    last_setback: WorkunitFailed | UpdateRefused | ResultRefused | None = None
    """The last reason for which a workunit had to be made again."""
    paused: RunPaused | None = None
    """Set while the last session is one that ended cleanly before the job's end."""
    stop: StopDecided | None = None
    finished: bool = False
    _wanted: dict[int, set[int]] = field(default_factory=dict)
    _earlier_s: float = 0.0
    _started_s: float | None = None
    _last_s: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """The report of a journal."""
        report = cls()
        for recorded in events:
            report.fold(recorded)
        return report

    def fold(self, recorded: Recorded) -> None:
        """Take in the journal's next event."""
        if isinstance(recorded.event, RunStarted | RunReopened):  # the last session lasted until its last event
            self._earlier_s, self._started_s = self.wall_s, recorded.time_s
        self._last_s = recorded.time_s
        self._count(recorded)

    def _count(self, recorded: Recorded) -> None:
        time_s = recorded.time_s
        match event := recorded.event:
            case RunStarted():
                self.paused = None
            case RunPaused():
                self.paused = event
                self._end_session()
            case WorkunitCreated(workunit):
                self.created += 1
                self.retried += WorkunitName.parse(workunit).attempt > 0
            case WorkunitSent():
                self.bytes_down += event.bytes_down
            case WorkunitFailed():
                self.failed += 1
                self.last_setback = event
            case UpdateApplied():
                epoch = WorkunitName.parse(event.workunit).epoch
                self.updates.append(Timed(time_s, self.wall_s, event))
                self.applied_by_epoch[epoch] = self.applied_by_epoch.get(epoch, 0) + 1
                self.samples_trained += event.samples
                self.bytes_up += event.bytes_up
            case UpdateRefused() | ResultRefused():
                self.refused += 1
                self.bytes_up += event.bytes_up
                self.last_setback = event
            case UpdateSuperseded():
                self.superseded += 1
                self.bytes_up += event.bytes_up
            case EpochClosed():
                self.closed[event.epoch] = Timed(time_s, self.wall_s, event)
                self.lost = event.lost
            case EvaluationWanted():
                if event.split == VALIDATION:
                    self._wanted.setdefault(event.epoch, set()).add(event.version)
            case VersionEvaluated():
                self.evaluations.append(Timed(time_s, self.wall_s, event))
            case StopDecided():
                self.stop = event
                self.lost = event.lost
            case RunFinished():
                self.finished = True
                self._end_session()
            case RunReopened():
                self.stop, self.finished = None, False

    def _end_session(self) -> None:
        self._earlier_s, self._started_s = self.wall_s, None

    # -- figures

    @property
    def wall_s(self) -> float:
        """Active time up to the last event."""
        return self.wall_s_at(self._last_s)

    def wall_s_at(self, now_s: float) -> float:
        """Active time at a Unix time, if the last session has been going on until then."""
        return self._earlier_s + (now_s - self._started_s if self._started_s is not None else 0.0)

    @property
    def epochs(self) -> list[EpochDetail]:
        """Epochs that are closed and evaluated, in order."""
        found = {t.event.version: measure(t.event) for t in self.evaluations if t.event.split == VALIDATION}
        details: list[EpochDetail] = []
        while (closed := self.closed.get(epoch := len(details) + 1)) is not None:
            versions = self._wanted.get(epoch, set()) | {closed.event.version}
            measured = [found[version] for version in versions if version in found]
            if len(measured) < len(versions):
                break
            mean = sum(measured) / len(measured)
            details.append(EpochDetail(epoch, mean, min(measured), max(measured), closed.wall_s))
        return details

    @property
    def is_given_up(self) -> bool:
        """Whether the job ended because a shard kept failing: `vcdl resume` tries it again."""
        return self.stop is not None and self.stop.reason == StopReason.SUBTASK_FAILED

    @property
    def is_regression(self) -> bool:
        """Whether losses are measured instead of accuracies."""
        return any(timed.event.accuracy is None for timed in self.evaluations[:1])

    @property
    def best_epoch(self) -> EpochDetail | None:
        """The epoch with the best mean: the highest accuracy, or the lowest loss; the first one of equals."""
        sign = -1.0 if self.is_regression else 1.0
        finite = [detail for detail in self.epochs if math.isfinite(detail.mean)]
        return max(finite, key=lambda detail: sign * detail.mean, default=None)

    def final(self, split: str) -> VersionEvaluated | None:
        """How the job's last version did on a whole split, one of FINAL_SPLITS; None until it is measured."""
        version = self.stop.version if self.stop else None
        found = (timed.event for timed in self.evaluations if timed.event.split == split)
        return next((evaluated for evaluated in found if evaluated.version == version), None)

    @property
    def final_validation(self) -> VersionEvaluated | None:
        return self.final(FINAL_SPLITS[0])

    @property
    def final_test(self) -> VersionEvaluated | None:
        return self.final(FINAL_SPLITS[1])

    @property
    def staleness_mean(self) -> float | None:
        """Versions between base and server over all updates; None before the first one."""
        return sum(timed.event.staleness for timed in self.updates) / len(self.updates) if self.updates else None

    @property
    def staleness_max(self) -> int | None:
        return max((timed.event.staleness for timed in self.updates), default=None)

    def rates(self, now_s: float) -> Rates | None:
        """Speed over the last updates, at a Unix time while the run goes on; None before there are two."""
        recent = self.updates[-_RECENT_UPDATES:]
        if len(recent) < 2:
            return None
        span_s = self.wall_s_at(now_s) - recent[0].wall_s
        if span_s <= 0:
            return None
        samples = sum(timed.event.samples for timed in recent[1:])
        return Rates((len(recent) - 1) / span_s, samples / span_s)


def measure(evaluated: VersionEvaluated) -> float:
    """What an evaluation is judged by: its accuracy, or the loss of a regression."""
    return evaluated.loss if evaluated.accuracy is None else evaluated.accuracy
