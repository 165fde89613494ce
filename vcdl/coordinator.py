"""The state machine of a job: events in, actions out. No I/O and no clock of its own.

State is folded from the journal's events alone, and what should be done next is read off the state: restarting a job is
folding its journal again. An action that was carried out shows as an event; one that was lost is simply asked for again.

`rolling`: a subtask is created only when the grid runs low, from the newest weights, and may begin the next epoch before the
last subtasks of this one are back. `epoch` (the paper's): all subtasks of an epoch start from the weights at its begin.
"""

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vcdl.events import (
    EpochClosed,
    EvaluationWanted,
    Recorded,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.plan import Plan, is_validated
from vcdl.workunit import WorkunitName

VALIDATION = "validation"
FINAL_SPLITS = ("final_validation", "test")


class StopReason(StrEnum):
    """Why a job ended; in summary.json as `stop_reason`."""

    TARGET_ACCURACY = "target_accuracy"
    EPOCHS = "epochs"
    NO_IMPROVEMENT = "no_improvement"
    WALL_TIME = "wall_time"
    SUBTASK_FAILED = "subtask_failed"
    """A shard was tried `tries` times in vain."""


@dataclass(frozen=True)
class Create:
    """Make a workunit; `base_version` None stands for the newest weights."""

    epoch: int
    shard: int
    attempt: int
    base_version: int | None


@dataclass(frozen=True)
class CloseEpoch:
    """Keep a snapshot of the newest weights as the end of this epoch."""

    epoch: int


@dataclass(frozen=True)
class Evaluate:
    version: int
    epoch: int
    split: str


@dataclass(frozen=True)
class Stop:
    """Cancel what is open and keep a snapshot of the newest weights as the job's end."""

    reason: StopReason


@dataclass(frozen=True)
class Finish:
    """Everything has been evaluated."""


Action = Create | CloseEpoch | Evaluate | Stop | Finish


@dataclass(frozen=True)
class Making:
    """Of a workunit: how far the job was, which decides its learning rate."""

    company: int
    """Clients that were at work."""
    open: int
    """Workunits that were open, with all that were made at the same moment."""
    made: int
    """Subtasks that had been made, each counted once."""


@dataclass(frozen=True)
class EpochScore:
    """How an epoch did, over the evaluations of the versions its updates made."""

    epoch: int
    mean: float
    min: float
    max: float


class Coordinator:
    """Folds events and says what to do next."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.open: dict[str, WorkunitName] = {}
        """Workunits that were created and have not come to an end."""
        self._at_work: set[str] = set()
        """Those of them that a client has begun."""
        self._makings: dict[str, Making] = {}
        """Of each of them."""
        self.version = 0
        """The newest one the journal knows."""
        self.stopped: StopDecided | None = None
        self.finished = False
        self.closed: dict[int, int] = {}
        """Version kept at the end of each closed epoch."""
        self.scores: list[EpochScore] = []
        """Of epochs that are closed and evaluated, in order."""
        self._applied: dict[int, set[int]] = {}
        self._bases: dict[int, int] = {}
        """Version → the one its client started from, of the updates since the last closed epoch."""
        self._retries: deque[tuple[int, int, int]] = deque()
        self._attempts: dict[tuple[int, int], int] = {}
        """The last attempt at each subtask."""
        self._failures: Counter[tuple[int, int]] = Counter()
        """Tries in vain at each subtask."""
        self._exhausted = False
        self._epoch = 1
        self._position = 0
        self._order = self._shard_order(1)
        self._asked: dict[tuple[int, str], int] = {}
        self._announced: set[tuple[int, str]] = set()
        self._evaluated: dict[tuple[int, str], VersionEvaluated] = {}
        self._earlier_s = 0.0
        self._started_s: float | None = None
        self._last_s = 0.0

    def fold(self, recorded: Recorded) -> None:
        """Take an event into the state."""
        event = recorded.event
        match event:
            case RunStarted():
                self._begin_session(recorded.time_s)
            case RunPaused():
                self._end_session(recorded.time_s)
            case WorkunitCreated():
                self._created(WorkunitName.parse(event.workunit), event)
            case WorkunitSent():
                self._at_work.add(event.workunit)
            case UpdateApplied():
                self._came_back(event)
            case UpdateRefused() | WorkunitFailed():
                self._came_to_nothing(event.workunit, is_a_try=True)
            case WorkunitCancelled():
                self._came_to_nothing(event.workunit, is_a_try=False)
            case UpdateSuperseded():
                self.open.pop(event.workunit, None)
            case EpochClosed():
                self.closed[event.epoch] = event.version
                self._bases = {version: base for version, base in self._bases.items() if version > event.version}
                self._ask(event.version, event.epoch, VALIDATION)
                self._judge()
            case EvaluationWanted():
                self._announced.add((event.version, event.split))
            case VersionEvaluated():
                self._evaluated[event.version, event.split] = event
                self._judge()
            case StopDecided():
                self.stopped = event
                self.open.clear()
                self._retries.clear()
                for split in FINAL_SPLITS if self._plan.has_test else FINAL_SPLITS[:1]:
                    self._ask(event.version, 0, split)
            case RunFinished():
                self.finished = True
                self._end_session(recorded.time_s)
            case RunReopened():
                self._begin_session(recorded.time_s)
                self._reopen()
            case _:
                pass
        self._last_s = recorded.time_s
        self._at_work &= self.open.keys()
        if len(self._makings) > len(self.open):
            self._makings = {workunit: making for workunit, making in self._makings.items() if workunit in self.open}

    def actions(self, now_s: float, open_wanted: int) -> list[Action]:
        """What should be done now; `open_wanted`: how many workunits the grid wants to have unsent or running."""
        if self.finished:
            return []
        evaluations: list[Action] = [
            Evaluate(version, epoch, split)
            for (version, split), epoch in self._asked.items()
            if (version, split) not in self._announced
        ]
        if self.stopped is not None:
            return evaluations or ([] if self._pending else [Finish()])
        reason = self._reason_to_stop(now_s)
        if reason is not None:
            return [Stop(reason)]
        return [*self._epochs_to_close(), *evaluations, *self._workunits_to_create(open_wanted)]

    def wall_s(self, now_s: float) -> float:
        """Seconds the job was being run, over all its sessions."""
        return self._earlier_s + (now_s - self._started_s if self._started_s is not None else 0.0)

    @property
    def best_epoch(self) -> EpochScore | None:
        """The closed and evaluated epoch with the best mean; the first one of equals."""
        return max(self.scores, key=lambda score: score.mean, default=None)

    @property
    def versions_in_use(self) -> set[int]:
        """Versions that a snapshot must be kept of."""
        best = self.best_epoch
        versions = {version for version, _ in self._pending} | {name.base_version for name in self.open.values()}
        versions |= {self.closed[best.epoch]} if best else set()
        versions |= {self.closed[max(self.closed)]} if self.closed else {0}
        versions |= {self.stopped.version} if self.stopped else set()
        return versions | {self.version}

    @property
    def versions_to_fold_again_with(self) -> set[int]:
        """Versions that a snapshot must be kept of besides, where a store may lose its memory: what the rule needs to fold again all that
        no epoch's snapshot covers.
        """
        is_over = self.stopped is not None and self.stopped.reason != StopReason.SUBTASK_FAILED
        return set(self._bases.values()) if self._plan.needs_bases and not is_over else set()

    def rate(self, epoch: int, shard: int, making: Making) -> float:
        """What the peak learning rate is multiplied with for a workunit: by its subtask's place in the order that they are made in, and
        by how many clients were at work, and workunits open, when it was created.

        One that is made again has the place of the subtask that was made last: a step as long as it was once due would undo what has been
        learned since.
        """
        plan = self._plan
        place = max((epoch - 1) * plan.shards + self._shard_order(epoch).index(shard), making.made - 1)
        return plan.rate.at(place, plan.epochs * plan.shards) * plan.scaling.at(making.company, making.open)

    def making(self, together: int = 1) -> Making:
        """Of each of so many workunits that are created now."""
        return Making(len(self._at_work), len(self.open) + together, self._made)

    def making_of(self, workunit: str) -> Making:
        """Of an open workunit."""
        return self._makings[workunit]

    # -- folding

    def _begin_session(self, now_s: float) -> None:
        """One that was killed, or given up before its end, lasted until its last event."""
        self._end_session(self._last_s)
        self._started_s = now_s

    def _end_session(self, now_s: float) -> None:
        self._earlier_s, self._started_s = self.wall_s(now_s), None

    @property
    def _made(self) -> int:
        return (self._epoch - 1) * self._plan.shards + self._position

    def _created(self, name: WorkunitName, event: WorkunitCreated) -> None:
        self._makings[event.workunit] = Making(len(self._at_work), event.open, self._made)
        self.open[event.workunit] = name
        self._attempts[name.epoch, name.shard] = name.attempt
        if name.attempt > 0:
            retry = (name.epoch, name.shard, name.attempt)
            if retry in self._retries:
                self._retries.remove(retry)
            return
        self._position += 1
        if self._position == self._plan.shards:
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._shard_order(self._epoch)

    def _came_back(self, event: UpdateApplied) -> None:
        name = WorkunitName.parse(event.workunit)
        self.version = max(self.version, event.version)
        self._bases[event.version] = event.base_version
        self._applied.setdefault(name.epoch, set()).add(name.shard)
        for other, open_name in list(self.open.items()):
            if open_name.subtask == name.subtask:  # a second attempt that is still out: its upload will be superseded
                del self.open[other]
        self._retries = deque(retry for retry in self._retries if retry[:2] != (name.epoch, name.shard))
        if is_validated(self._plan.validate_every, event.version):
            self._ask(event.version, name.epoch, VALIDATION)

    def _came_to_nothing(self, workunit: str, *, is_a_try: bool) -> None:
        name = self.open.pop(workunit, None)
        if name is None or name.shard in self._applied.get(name.epoch, set()):
            return
        self._failures[name.epoch, name.shard] += is_a_try
        if self._failures[name.epoch, name.shard] >= self._plan.tries:
            self._exhausted = True
        else:
            self._retries.append((name.epoch, name.shard, name.attempt + 1))

    def _reopen(self) -> None:
        """Every subtask that was begun and never applied gets as many tries again."""
        self.stopped, self.finished, self._exhausted = None, False, False
        self._failures.clear()
        self._retries = deque(
            (epoch, shard, attempt + 1)
            for (epoch, shard), attempt in sorted(self._attempts.items())
            if shard not in self._applied.get(epoch, set())
        )

    def _ask(self, version: int, epoch: int, split: str) -> None:
        self._asked.setdefault((version, split), epoch)

    def _judge(self) -> None:
        """Score the epochs, in order, whose evaluations are all there."""
        while (version := self.closed.get(epoch := len(self.scores) + 1)) is not None:
            versions = {v for (v, split), asked in self._asked.items() if asked == epoch and split == VALIDATION}
            evaluations = [self._evaluated.get((v, VALIDATION)) for v in sorted(versions | {version})]
            scores = [evaluation.score for evaluation in evaluations if evaluation is not None]
            if len(scores) < len(evaluations):
                return
            self.scores.append(EpochScore(epoch, sum(scores) / len(scores), min(scores), max(scores)))

    # -- deciding

    @property
    def _pending(self) -> set[tuple[int, str]]:
        return self._asked.keys() - self._evaluated.keys()

    def _reason_to_stop(self, now_s: float) -> StopReason | None:
        plan, best = self._plan, self.best_epoch
        if self._exhausted:
            return StopReason.SUBTASK_FAILED
        if best is not None:
            if plan.target_accuracy is not None and best.mean >= plan.target_accuracy:
                return StopReason.TARGET_ACCURACY
            if len(self.scores) >= plan.epochs:
                return StopReason.EPOCHS
            if plan.patience_epochs is not None and len(self.scores) - best.epoch >= plan.patience_epochs:
                return StopReason.NO_IMPROVEMENT
        if plan.wall_time_s is not None and self.wall_s(now_s) >= plan.wall_time_s:
            return StopReason.WALL_TIME
        return None

    def _epochs_to_close(self) -> list[Action]:
        epoch = len(self.closed) + 1
        return [CloseEpoch(epoch)] if len(self._applied.get(epoch, ())) == self._plan.shards else []

    def _workunits_to_create(self, open_wanted: int) -> list[Action]:
        """Retries first, then the shards of the current epoch in its order, then those of the next one."""
        free = open_wanted - len(self.open)
        created: list[Action] = []
        for epoch, shard, attempt in self._retries:
            if len(created) < free:
                created.append(Create(epoch, shard, attempt, self._base_version(epoch)))
        epoch, position, order = self._epoch, self._position, self._order
        while len(created) < free and self._may_begin(epoch):
            created.append(Create(epoch, order[position], 0, self._base_version(epoch)))
            position += 1
            if position == self._plan.shards:
                epoch, position = epoch + 1, 0
                order = self._shard_order(epoch)
        return created

    def _may_begin(self, epoch: int) -> bool:
        ahead = 1 if self._plan.rolling else 0  # rolling never runs more than one epoch ahead of a straggler
        return epoch <= self._plan.epochs and epoch <= len(self.closed) + 1 + ahead

    def _base_version(self, epoch: int) -> int | None:
        return None if self._plan.rolling else self.closed.get(epoch - 1, 0)

    def _shard_order(self, epoch: int) -> list[int]:
        return [int(shard) for shard in np.random.default_rng([self._plan.seed, epoch]).permutation(self._plan.shards)]
