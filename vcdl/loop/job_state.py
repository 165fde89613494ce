"""The state that the coordinator decides from: what follows from a job's events and its plan. No I/O, no clock.

It can be packed (vcdl.journal.packing), so a job is taken up without reading all of its journal again.
"""

from dataclasses import dataclass, field
from typing import Self

from vcdl.checks.refusal import Refusal
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Recorded,
    RolledBack,
    RowsRewritten,
    RunReopened,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.history import JobHistory
from vcdl.loop.collapse import CollapseWatch
from vcdl.loop.plan import Plan, is_validated
from vcdl.wire.workunit import WorkunitName


@dataclass(frozen=True)
class Following:
    """The part of a plan that says what an event means for the job."""

    tries: int
    validate_every: int
    needs_bases: bool
    rolls_back: bool


@dataclass
class Tries:
    """The attempts at the subtasks that are not applied."""

    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last attempt at each subtask that was created."""
    waiting: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtasks that wait to be tried again, in their order, with the attempt's number."""
    failed: dict[tuple[int, int], int] = field(default_factory=dict)
    """Failed tries of each subtask that has any."""
    exhausted: bool = False
    """Whether a subtask was tried in vain as often as allowed."""

    def created(self, name: WorkunitName) -> None:
        """An attempt is on its way."""
        subtask = name.epoch, name.shard
        self.last[subtask] = name.attempt
        if self.waiting.get(subtask) == name.attempt:
            del self.waiting[subtask]

    def applied(self, name: WorkunitName) -> None:
        """A subtask needs no more attempts."""
        for of_subtasks in (self.last, self.waiting, self.failed):
            of_subtasks.pop((name.epoch, name.shard), None)

    def came_to_nothing(self, name: WorkunitName, *, is_a_try: bool, allowed: int) -> None:
        """An open attempt at a subtask that is not applied has failed, or was taken back."""
        subtask = name.epoch, name.shard
        if is_a_try:
            self.failed[subtask] = self.failed.get(subtask, 0) + 1
        if self.failed.get(subtask, 0) >= allowed:
            self.exhausted = True
        else:
            self.waiting[subtask] = name.attempt + 1

    def reopen(self, history: JobHistory) -> None:
        """Give every begun and unapplied subtask a fresh number of tries."""
        self.exhausted = False
        self.failed.clear()
        self.waiting = {
            subtask: attempt + 1 for subtask, attempt in sorted(self.last.items()) if not history.is_applied(*subtask)
        }


@dataclass
class JobState:
    """A job as its coordinator sees it; `follow` each event in the order of the journal, then read."""

    plan: Following
    watch: CollapseWatch
    history: JobHistory = field(default_factory=JobHistory)
    tries: Tries = field(default_factory=Tries)
    due: dict[int, int] = field(default_factory=dict)
    """Version → epoch: validations that are wanted and not announced yet."""
    bases: dict[int, int] = field(default_factory=dict)
    """Version → the one its client started from, of the updates since `covered`."""
    covered: int = 0
    """The version from which updates may have to be folded again: the last closed epoch's end, or its last good
    one.
    """
    rewritten: int = 0
    """The version up to which rows were written again from the store's records: no upload of these is kept, and no
    snapshot but this one.
    """

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The state before the first event."""
        following = Following(plan.tries, plan.validate_every, plan.needs_bases, plan.rolls_back)
        return cls(following, CollapseWatch(plan.shards, plan.monitor))

    def follow(self, recorded: Recorded) -> None:
        """Take in the journal's next event; the time it takes does not depend on how many workunits are open."""
        event, history = recorded.event, self.history
        match event:
            case WorkunitCreated():
                self.tries.created(WorkunitName.parse(event.workunit))
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
                    self.due.pop(version, None)
            case RolledBack():
                self._rolled_back(event)
            case RowsRewritten():
                self.rewritten = event.version
            case StopDecided():
                self.tries.waiting.clear()
            case RunReopened():
                self.tries.reopen(history)
            case _:
                pass
        history.follow(recorded)
        self.watch.follow(event)
        if isinstance(event, EpochClosed | VersionEvaluated | RolledBack):
            self._cover()

    # -- called before the history has the event

    def _applied(self, event: UpdateApplied) -> None:
        name = self.history.open.get(event.workunit) or WorkunitName.parse(event.workunit)
        if self.plan.needs_bases:
            self.bases[event.version] = event.base_version
        self.tries.applied(name)
        if event.version >= self.rewritten and is_validated(self.plan.validate_every, event.version):
            self._want_validation(event.version, name.epoch)

    def _came_to_nothing(self, workunit: str, *, is_a_try: bool) -> None:
        name = self.history.open.get(workunit)
        if name is not None and not self.history.is_applied(name.epoch, name.shard):
            self.tries.came_to_nothing(name, is_a_try=is_a_try, allowed=self.plan.tries)

    def _rolled_back(self, event: RolledBack) -> None:
        """What started from weights that the job went back from is made again; that was no try."""
        for workunit in event.overtaken(self.history.open):
            self._came_to_nothing(workunit, is_a_try=False)
        self._want_validation(event.version, 0)

    def _want_validation(self, version: int, epoch: int) -> None:
        """Announce a validation for the first epoch that wants it."""
        if version not in self.due and not self.history.is_announced(version, VALIDATION):
            self.due[version] = epoch

    # -- called after it

    def _cover(self) -> None:
        history = self.history
        covered = self.watch.last_good_end if self.plan.rolls_back else history.end_of(len(history.closed))
        if covered != self.covered:
            self.covered = covered
            self.bases = {version: base for version, base in self.bases.items() if version > covered}
