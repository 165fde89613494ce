"""The state machine of a job: events in, actions out. No I/O and no clock of its own.

The state follows from the journal's events alone, and the coordinator reads off it what should be done next. So a
job is restarted by following its journal again. An action that was carried out shows as an event; one that was lost is
asked for again.

`rolling`: a subtask is created only when the grid runs low, from the newest weights, and may begin the next epoch
before the last subtasks of this one are back. `epoch` (the paper's): all subtasks of an epoch start from the weights
at its begin.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from vcdl.checks.refusal import Refusal
from vcdl.journal.events import (
    FINAL_SPLITS,
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Recorded,
    RolledBack,
    RunReopened,
    StopDecided,
    StopReason,
    UpdateApplied,
    UpdateRefused,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.history import CreationContext, JobHistory
from vcdl.loop.collapse import Collapse, CollapseWatch
from vcdl.loop.plan import Plan, is_validated
from vcdl.wire.workunit import WorkunitName


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
    """Keep a snapshot of a version, to be measured on a split."""

    version: int
    epoch: int
    split: str


@dataclass(frozen=True)
class LookAtNewest:
    """Keep a snapshot of the newest version, to be measured besides those that the job's schedule names."""


@dataclass(frozen=True)
class RollBack:
    """Go back to the last good version."""

    collapse: Collapse


@dataclass(frozen=True)
class Stop:
    """Cancel the open workunits and keep a snapshot of the newest weights as the job's end."""

    reason: StopReason


@dataclass(frozen=True)
class Finish:
    """Everything has been evaluated."""


Action = Create | CloseEpoch | Evaluate | LookAtNewest | RollBack | Stop | Finish


class Coordinator:
    """Follows a job's events and says what to do next."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.history = JobHistory()
        """The job as its events tell it; all decisions rest on it."""
        self._due: dict[int, int] = {}
        """Version → epoch: validations that are wanted and not announced yet."""
        self._bases: dict[int, int] = {}
        """Version → the one its client started from, of the updates since the last closed epoch."""
        self._attempts: dict[tuple[int, int], int] = {}
        """The last attempt at each subtask that was created and is not applied."""
        self._retries: dict[tuple[int, int], int] = {}
        """Subtasks that wait to be tried again, in their order, with the attempt's number."""
        self._failures: Counter[tuple[int, int]] = Counter()
        """Failed tries of each subtask that is not applied."""
        self._exhausted = False
        self._watch = CollapseWatch(plan.shards)
        self._covered = 0

    def follow(self, recorded: Recorded) -> None:
        """Take in the journal's next event; the time it takes does not depend on how many workunits are open."""
        event, history = recorded.event, self.history
        match event:
            case WorkunitCreated():
                self._created(WorkunitName.parse(event.workunit))
            case UpdateApplied():
                self._applied(event)
            case UpdateRefused():
                # A host in quarantine says nothing about the subtask: with enough of them, none would be left to try.
                self._came_to_nothing(event.workunit, is_a_try=event.refusal != Refusal.QUARANTINED)
            case WorkunitFailed():
                self._came_to_nothing(event.workunit, is_a_try=True)
            case WorkunitCancelled():
                self._came_to_nothing(event.workunit, is_a_try=False)
            case EpochClosed():
                self._want_validation(event.version, event.epoch)
            case EvaluationWanted(version, _, split):
                if split == VALIDATION:
                    self._due.pop(version, None)
            case RolledBack():
                self._rolled_back(event)
            case StopDecided():
                self._retries.clear()
            case RunReopened():
                self._reopen()
            case _:
                pass
        history.follow(recorded)
        self._watch.follow(event)
        if isinstance(event, EpochClosed | VersionEvaluated | RolledBack) and self.covered != self._covered:
            self._covered = self.covered
            self._bases = {version: base for version, base in self._bases.items() if version > self._covered}

    def actions(self, now_s: float, open_wanted: int) -> list[Action]:
        """The actions to take now; `open_wanted`: number of workunits that the grid wants unsent or running.

        Validations come before the end of their epoch, so a reader of a closed epoch knows which of its versions
        are evaluated.
        """
        history = self.history
        if history.finished:
            return []
        evaluations: list[Action] = [Evaluate(version, epoch, VALIDATION) for version, epoch in self._due.items()]
        if history.stop is not None:
            evaluations += self._final_evaluations(history.stop.version)
            return evaluations or ([] if history.wanted else [Finish()])
        if self.collapse is not None:
            return [RollBack(self.collapse)]
        reason = self._reason_to_stop(now_s)
        if reason is not None:
            return [Stop(reason)]
        if self._must_be_looked_at():
            evaluations.append(LookAtNewest())
        return [*evaluations, *self._epochs_to_close(), *self._workunits_to_create(open_wanted)]

    # -- what the work generator must know besides

    @property
    def open(self) -> Mapping[str, WorkunitName]:
        """Workunits that were created and have not come to an end."""
        return self.history.open

    @property
    def version(self) -> int:
        """The newest version of the weights that the journal knows."""
        return self.history.version

    @property
    def closed(self) -> dict[int, int]:
        """The version kept at the end of each closed epoch."""
        return {epoch: timed.event.version for epoch, timed in self.history.closed.items()}

    @property
    def stopped(self) -> StopDecided | None:
        """Set when the job takes no more updates."""
        return self.history.stop

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.history.finished

    @property
    def versions_in_use(self) -> set[int]:
        """Versions whose snapshots must be kept."""
        history = self.history
        versions = set(history.bases)
        versions.update(self._due, (version for version, _ in history.wanted))
        versions |= {history.version, history.end_of(len(history.closed))}
        if self._plan.rolls_back:
            versions.update(self._watch.to_keep)
        if history.best_epoch is not None:
            versions.add(history.closed[history.best_epoch.epoch].event.version)
        if history.stop is not None:
            versions.add(history.stop.version)
        return versions

    @property
    def covered(self) -> int:
        """The version from which updates may have to be folded again: the last closed epoch's end, or its last good
        one.
        """
        if self._plan.rolls_back:
            return self._watch.last_good_end
        return self.history.end_of(len(self.history.closed))

    @property
    def collapse(self) -> Collapse | None:
        """The collapse that the job must go back from."""
        return self._watch.collapse if self._plan.rolls_back else None

    @property
    def versions_to_fold_again_with(self) -> set[int]:
        """Further versions whose snapshots must be kept: the bases of the updates since the last closed epoch.

        Where the rule needs them, these updates can only be folded again with them, after the store lost its weights.
        """
        stop = self.history.stop
        is_over = stop is not None and stop.reason != StopReason.SUBTASK_FAILED
        return set(self._bases.values()) if self._plan.needs_bases and not is_over else set()

    def rate(self, epoch: int, shard: int, context: CreationContext) -> float:
        """The factor of the peak learning rate for a workunit.

        It depends on the subtask's place in the order of creation, and on how many clients were at work and workunits
        open when this one was created. A subtask that is tried again has the place of the newest subtask: a step as
        long as it was once due would undo what has been learned since.
        """
        plan = self._plan
        place = (epoch - 1) * plan.shards + _order(plan.seed, epoch, plan.shards).places[shard]
        place = max(place, context.made - 1)
        factor = plan.scaling.at(context.active_clients, context.open)
        return plan.rate.at(place, plan.epochs * plan.shards) * factor

    # -- following: called before the history has the event

    def _created(self, name: WorkunitName) -> None:
        subtask = name.epoch, name.shard
        self._attempts[subtask] = name.attempt
        if self._retries.get(subtask) == name.attempt:
            del self._retries[subtask]

    def _applied(self, event: UpdateApplied) -> None:
        name = self.history.open.get(event.workunit) or WorkunitName.parse(event.workunit)
        subtask = name.epoch, name.shard
        if self._plan.needs_bases:
            self._bases[event.version] = event.base_version
        for of_subtasks in (self._attempts, self._retries, self._failures):
            of_subtasks.pop(subtask, None)
        if is_validated(self._plan.validate_every, event.version):
            self._want_validation(event.version, name.epoch)

    def _came_to_nothing(self, workunit: str, *, is_a_try: bool) -> None:
        name = self.history.open.get(workunit)
        if name is None or self.history.is_applied(name.epoch, name.shard):
            return
        subtask = name.epoch, name.shard
        self._failures[subtask] += is_a_try
        if self._failures[subtask] >= self._plan.tries:
            self._exhausted = True
        else:
            self._retries[subtask] = name.attempt + 1

    def _rolled_back(self, event: RolledBack) -> None:
        """What started from weights that the job went back from is made again; that was no try."""
        for workunit in event.overtaken(self.history.open):
            self._came_to_nothing(workunit, is_a_try=False)
        self._want_validation(event.version, 0)

    def _want_validation(self, version: int, epoch: int) -> None:
        """Announce a validation for the first epoch that wants it."""
        if version not in self._due and not self._is_announced(version, VALIDATION):
            self._due[version] = epoch

    def _reopen(self) -> None:
        """Give every begun and unapplied subtask a fresh number of tries."""
        self._exhausted = False
        self._failures.clear()
        self._retries = {
            subtask: attempt + 1
            for subtask, attempt in sorted(self._attempts.items())
            if not self.history.is_applied(*subtask)
        }

    # -- deciding

    def _final_evaluations(self, version: int) -> list[Action]:
        splits = FINAL_SPLITS if self._plan.has_test else FINAL_SPLITS[:1]
        return [Evaluate(version, 0, split) for split in splits if not self._is_announced(version, split)]

    def _must_be_looked_at(self) -> bool:
        """Whether one more version must be measured, to tell a collapse from a swing."""
        if not self._plan.rolls_back or not self._watch.wants_measure_of(self.version):
            return False
        is_known = self.version in self._due or self._is_announced(self.version, VALIDATION)
        return not is_known and not any(split == VALIDATION for _, split in self.history.wanted)

    def _is_announced(self, version: int, split: str) -> bool:
        return (version, split) in self.history.wanted or (version, split) in self.history.measured

    def _reason_to_stop(self, now_s: float) -> StopReason | None:
        plan, history = self._plan, self.history
        best = history.best_epoch
        if self._exhausted:
            return StopReason.SUBTASK_FAILED
        if best is not None:
            if plan.target_accuracy is not None and history.score(best) >= plan.target_accuracy:
                return StopReason.TARGET_ACCURACY
            if len(history.epochs) >= plan.epochs:
                return StopReason.EPOCHS
            if plan.patience_epochs is not None and len(history.epochs) - best.epoch >= plan.patience_epochs:
                return StopReason.NO_IMPROVEMENT
        if plan.wall_time_s is not None and history.wall_s_at(now_s) >= plan.wall_time_s:
            return StopReason.WALL_TIME
        return None

    def _epochs_to_close(self) -> list[Action]:
        epoch = len(self.history.closed) + 1
        return [CloseEpoch(epoch)] if self.history.applied_by_epoch[epoch] == self._plan.shards else []

    def _workunits_to_create(self, open_wanted: int) -> list[Action]:
        """Retries first, then the shards of the current epoch in its order, then those of the next one."""
        plan, made = self._plan, self.history.made
        free = max(0, open_wanted - len(self.history.open))
        created: list[Action] = [
            Create(epoch, shard, attempt, self._base_version(epoch))
            for (epoch, shard), attempt in islice(self._retries.items(), free)
        ]
        while len(created) < free:
            epoch, position = made // plan.shards + 1, made % plan.shards
            if not self._may_begin(epoch):
                break
            shard = _order(plan.seed, epoch, plan.shards).shards[position]
            created.append(Create(epoch, shard, 0, self._base_version(epoch)))
            made += 1
        return created

    def _may_begin(self, epoch: int) -> bool:
        ahead = 1 if self._plan.rolling else 0  # rolling never runs more than one epoch ahead of a straggler
        return epoch <= self._plan.epochs and epoch <= len(self.history.closed) + 1 + ahead

    def _base_version(self, epoch: int) -> int | None:
        return None if self._plan.rolling else self.history.end_of(epoch - 1)


@dataclass(frozen=True)
class _Order:
    """The order in which an epoch's subtasks are created."""

    shards: tuple[int, ...]
    """Place → shard."""
    places: tuple[int, ...]
    """Shard → place."""


@lru_cache(maxsize=32)  # a few epochs of each open job: the order of 10 000 shards takes a millisecond
def _order(seed: int, epoch: int, shards: int) -> _Order:
    order = np.random.default_rng([seed, epoch]).permutation(shards)
    return _Order(tuple(order.tolist()), tuple(np.argsort(order).tolist()))
