"""The state that the coordinator decides from: it follows from a job's events and its plan. No I/O, no clock.

It can be packed (vcdl.journal.packing), so a job resumes without reading its whole journal again.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Self

from vcdl.errors.refusal import Blame, blame_of
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    HostConvicted,
    Recorded,
    RolledBack,
    RowsRewritten,
    RunReopened,
    StopDecided,
    SubtaskTried,
    UpdateApplied,
    UpdateRefused,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.journal.history import JobHistory
from vcdl.loop.plan import Following, Plan, is_validated
from vcdl.trust.job_trust import JobTrust
from vcdl.wire.taken import TOLD_EPOCHS, upload_mark
from vcdl.wire.workunit import WorkunitName, attempt_after

_AGAIN = 3
"""Multiple of the tries after which a fleet too small for them has failed at a subtask: it would never end otherwise.
"""


@dataclass
class Tries:
    """The attempts at the subtasks that are not applied."""

    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last attempt at each subtask that was created."""
    waiting: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtasks that wait to be tried again, in their order, with the attempt's number."""
    failed: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    """Subtask → its failed tries, per host, or per workunit where hosts cannot be distinguished."""
    again: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtask that was applied and is trained again, because its update was a lie or partial → the turn."""
    own_in_a_row: int = 0
    """Updates that the server trained itself since a host brought one."""
    exhausted: bool = False
    """Whether a subtask was tried in vain as often as allowed."""

    def created(self, name: WorkunitName) -> None:
        """Record that an attempt is on its way. The server's own attempts are additional to those of hosts."""
        if name.is_own:
            return
        subtask = name.epoch, name.shard
        self.last[subtask] = name.attempt
        if self.waiting.get(subtask) == name.attempt:
            del self.waiting[subtask]

    def applied(self, name: WorkunitName) -> None:
        """Record that a subtask needs no more attempts."""
        for of_subtasks in (self.last, self.waiting, self.failed, self.again):
            of_subtasks.pop((name.epoch, name.shard), None)

    def make_again(self, name: WorkunitName) -> None:
        """Plan a new turn of a subtask whose update was a lie, or a part of it, as if it had not been tried."""
        subtask = name.epoch, name.shard
        self.last[subtask] = name.attempt
        self.again[subtask], self.waiting[subtask] = name.turn + 1, name.next_turn

    def came_to_nothing(
        self, name: WorkunitName, failed: str | None, trust: JobTrust, open_workunits: Container[str], allowed: float
    ) -> None:
        """Plan the next attempt at a subtask whose open attempt failed or was cancelled.

        Args:
            name: The attempt.
            failed: The host that failed; None for a cancelled attempt.
            trust: Says whose failure is a try, and which hosts there are.
            open_workunits: The workunits that are open.
            allowed: Tries after which the job ends.
        """
        subtask = name.epoch, name.shard
        if failed is not None:
            self.failed.setdefault(subtask, Counter())[failed] += 1
        # Failures of one host count once towards the limit, so that a single broken machine cannot end the job. `again`
        # counts its repeated ones for the fleet that has no other hosts.
        tries = self.failed.get(subtask, Counter())
        again = tries.total() - len(tries)
        are_tries = sum(map(trust.counts, tries))
        if are_tries >= allowed or (again >= _AGAIN * allowed and trust.are_all(tries, open_workunits)):
            self.exhausted = True
        else:
            self.waiting[subtask] = attempt_after(name.attempt)

    def reopen(self, history: JobHistory) -> None:
        """Give every started and unapplied subtask its full number of tries again."""
        self.exhausted, self.own_in_a_row = False, 0
        self.failed.clear()
        self.waiting = {
            subtask: attempt_after(attempt)
            for subtask, attempt in sorted(self.last.items())
            if subtask in self.again or not history.is_applied(*subtask)
        }


@dataclass
class JobState:
    """A job as its coordinator sees it; `follow` each event in the order of the journal, then read."""

    plan: Following
    trust: JobTrust
    history: JobHistory = field(default_factory=JobHistory)
    tries: Tries = field(default_factory=Tries)
    due: dict[int, int] = field(default_factory=dict)
    """Version → epoch: validations that are wanted and not announced yet."""
    bases: dict[int, int] = field(default_factory=dict)
    """Version → the one its client started from, of the updates since `covered`."""
    covered: int = 0
    """The version from which updates may be folded again: the last closed epoch's end, or the last good one but one."""
    taken: dict[int, dict[int, int]] = field(default_factory=dict)
    """Epoch → shard → the mark of the upload that counts, of the last epochs, where hosts remember what they sent."""
    rewritten: int = 0
    """The version up to which rows were written again: none of these uploads is kept, and no snapshot but this."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the state before the first event."""
        following = Following(**{name: getattr(plan, name) for name in Following.__dataclass_fields__})
        return cls(following, JobTrust.of(plan.trust, plan.shards, plan.monitor))

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event, in a time that does not depend on how many workunits are open.

        The history gets the event last. What stands above it therefore sees the workunit still open and its subtask not
        yet applied, and what stands below it (`_cover`) sees the epoch closed.
        """
        event, history = recorded.event, self.history
        self.trust.follow(recorded, history.open)
        self._follow_workunits(event)
        match event:
            case HostConvicted():
                for workunit in event.again:
                    self._make_again(WorkunitName.parse(workunit))
            case EpochClosed():
                self._want_validation(event.version, event.epoch)
                # Workunits tell of the last TOLD_EPOCHS epochs only, and `rolling` is at most one epoch ahead of a
                # straggler.
                self.taken.pop(event.epoch - TOLD_EPOCHS + 1, None)
            case EvaluationWanted(version, _, split):
                if split == VALIDATION:
                    self.due.pop(version, None)
            case RolledBack():
                self._rolled_back(event)
            case RowsRewritten():
                self.rewritten = event.version
            case StopDecided():
                # A job that is reopened plans its retries anew from what is not applied.
                self.tries.waiting.clear()
            case RunReopened():
                self.tries.reopen(history)
            case _:
                pass
        history.follow(recorded)
        self.trust.forget_closed(history.open)
        if isinstance(event, EpochClosed | VersionEvaluated | RolledBack | HostConvicted):
            self._cover()

    def _follow_workunits(self, event: Event) -> None:
        match event:
            case WorkunitCreated():
                self.tries.created(WorkunitName.parse(event.workunit))
            case UpdateApplied():
                self._applied(event)
            case UpdateRefused():
                is_a_try = blame_of(event.refusal) is not Blame.HOST  # with enough such hosts none would be left to try
                self._came_to_nothing(event.workunit, self.trust.who(event.workunit, event.host) if is_a_try else None)
            case WorkunitFailed():
                self._came_to_nothing(event.workunit, self.trust.who(event.workunit))
            case WorkunitCancelled():
                self._came_to_nothing(event.workunit)
            # otherwise it is no longer awaited
            # The server's own training is the last resort: where it fails too, no host can be expected to succeed.
            case SubtaskTried() if event.error and event.workunit in self.history.open:
                self.tries.exhausted = True
            case _:
                pass

    @property
    def is_settled(self) -> bool:
        """Whether no subtask has to be retrained and no upload examined before the job ends."""
        return not self.tries.again and self.trust.is_verified(self.history.version)

    def taken_for(self, epoch: int) -> str | None:
        """Return what a workunit of an epoch tells of earlier uploads (`Workunit.taken`)."""
        if not self.plan.hosts_remember:
            return None
        epochs, shards = range(epoch - TOLD_EPOCHS + 1, epoch + 1), range(self.plan.shards)
        return bytes(self.taken.get(epoch, {}).get(shard, 0) for epoch in epochs for shard in shards).hex()

    # -- called before the history has the event

    def _applied(self, event: UpdateApplied) -> None:
        name = self.history.open.get(event.workunit) or WorkunitName.parse(event.workunit)
        # Without these snapshots the store could not be restored: the rule, or a codec of differences, needs the
        # weights that the client started from.
        if self.plan.needs_bases:
            self.bases[event.version] = event.base_version
        if self.plan.hosts_remember:
            self.taken.setdefault(name.epoch, {})[name.shard] = upload_mark(event.workunit, event.train_s)
        self.tries.applied(name)
        # After `applied`, which forgets the subtask: what the part left out is a new turn with its own key (decision
        # 122).
        if event.is_part:
            self.tries.make_again(name)
        self.tries.own_in_a_row = self.tries.own_in_a_row + 1 if name.is_own else 0
        if self.tries.own_in_a_row >= self.plan.tries:  # no host brings anything: the operator should know
            self.tries.exhausted = True
        # Versions below were rewritten from the store's records and have no snapshot that could be measured.
        if event.version >= self.rewritten and is_validated(self.plan.validate_every, event.version):
            self._want_validation(event.version, 0 if name.turn else name.epoch)

    def _came_to_nothing(self, workunit: str, failed: str | None = None) -> None:
        name = self.history.open.get(workunit)
        # An attempt that is not open has been dealt with already: two rows may tell the same end, as after a kill. The
        # server's own attempt never makes hosts lose a try.
        if name is not None and not name.is_own and not self._is_done(name):
            allowed = self.trust.tries_allowed(self.plan.tries)
            self.tries.came_to_nothing(name, failed, self.trust, self.history.open, allowed)

    def _is_done(self, name: WorkunitName) -> bool:
        """Return whether a subtask needs no more attempts."""
        return self.history.is_applied(name.epoch, name.shard) and name.turn != self.tries.again.get(
            (name.epoch, name.shard)
        )

    def _rolled_back(self, event: RolledBack) -> None:
        """Make workunits that started from undone weights again; that was no try."""
        for workunit in event.overtaken(self.history.open):
            self._came_to_nothing(workunit)
        for workunit in event.again:
            self._make_again(WorkunitName.parse(workunit))
        self.covered = min(self.covered, event.to)
        self._want_validation(event.version, 0)

    def _make_again(self, name: WorkunitName) -> None:
        """Plan a new turn of a subtask whose update no longer counts."""
        self.taken.get(name.epoch, {}).pop(name.shard, None)
        self.tries.make_again(name)

    def _want_validation(self, version: int, epoch: int) -> None:
        """Announce a validation for the first epoch that wants it."""
        if version not in self.due and not self.history.is_announced(version, VALIDATION):
            self.due[version] = epoch

    # -- called after it

    def _cover(self) -> None:
        history = self.history
        # Uploads up to here are gone, whatever the job goes back to.
        covered = self.trust.covered(history.end_of(len(history.closed)), self.covered)
        if covered != self.covered:
            self.covered = covered
            self.bases = {version: base for version, base in self.bases.items() if version > covered}
