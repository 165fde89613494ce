"""The coordinator's state, computed from a job's events and its plan only, without I/O and clock.

vcdl.journal.packing can store it, so that a job resumes without reading its whole journal again.
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
"""Repeated failures of the same hosts, as a multiple of the allowed tries, after which a fleet with few hosts has
failed at a subtask. Otherwise a subtask that always fails there would be retried without end."""


@dataclass
class Tries:
    """The attempts at subtasks that are not applied yet. A subtask is (epoch, shard)."""

    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtask → its last attempt, for each subtask that was created."""
    waiting: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtask → the number of its next attempt, for subtasks that wait for a retry, in order."""
    failed: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    """Subtask → host → number of its failures; if hosts are not distinguished, by workunit instead of host."""
    again: dict[tuple[int, int], int] = field(default_factory=dict)
    """Subtask → how often it was reissued, for subtasks that were applied and are now trained again, because their
    update was a lie, was dropped with one, or covered only a part."""
    own_in_a_row: int = 0
    """Number of updates that the server trained itself since the last one from a host."""
    exhausted: bool = False
    """Whether a subtask has failed as often as allowed, which ends the job."""

    def record_created(self, name: WorkunitName) -> None:
        """Record that an attempt was created.

        The server's own attempts are ignored: they add to a host's, so they must not replace its number in `last`.
        """
        if name.is_own:
            return
        subtask = name.epoch, name.shard
        self.last[subtask] = name.attempt
        if self.waiting.get(subtask) == name.attempt:
            del self.waiting[subtask]

    def record_applied(self, name: WorkunitName) -> None:
        """Forget the attempts at a subtask, because its update was applied."""
        for of_subtasks in (self.last, self.waiting, self.failed, self.again):
            of_subtasks.pop((name.epoch, name.shard), None)

    def make_again(self, name: WorkunitName) -> None:
        """Plan to train an applied subtask again; its earlier failures do not count."""
        subtask = name.epoch, name.shard
        self.last[subtask] = name.attempt
        self.again[subtask], self.waiting[subtask] = name.turn + 1, name.next_turn

    def plan_retry(
        self, name: WorkunitName, failed: str | None, trust: JobTrust, open_workunits: Container[str], allowed: float
    ) -> None:
        """Plan the next attempt at a subtask after a failed or cancelled one, or set `exhausted` if no try is left.

        Args:
            name: The attempt.
            failed: The host that failed; None for a cancelled attempt, which does not count.
            trust: Decides which hosts' failures count, and knows the hosts at work.
            open_workunits: The names of the open workunits.
            allowed: Number of failures at the subtask that ends the job; those of one host count once.
        """
        subtask = name.epoch, name.shard
        if failed is not None:
            self.failed.setdefault(subtask, Counter())[failed] += 1
        # Failures of one host count once towards the limit, so that a single broken machine cannot end the job. Its
        # repeated failures are limited separately, for a fleet that has no other hosts.
        tries = self.failed.get(subtask, Counter())
        again = tries.total() - len(tries)
        are_tries = sum(map(trust.counts, tries))
        if are_tries >= allowed or (again >= _AGAIN * allowed and trust.are_all(tries, open_workunits)):
            self.exhausted = True
        else:
            self.waiting[subtask] = attempt_after(name.attempt)

    def reopen(self, history: JobHistory) -> None:
        """Plan to retry every subtask that was created and is not applied, after the job ended without tries left.

        Earlier failures no longer count.
        """
        self.exhausted, self.own_in_a_row = False, 0
        self.failed.clear()
        self.waiting = {
            subtask: attempt_after(attempt)
            for subtask, attempt in sorted(self.last.items())
            if subtask in self.again or not history.is_applied(*subtask)
        }


@dataclass
class JobState:
    """A job's state for its coordinator: pass each event to `follow` in the journal's order, then read the fields."""

    plan: Following
    trust: JobTrust
    history: JobHistory = field(default_factory=JobHistory)
    tries: Tries = field(default_factory=Tries)
    due: dict[int, int] = field(default_factory=dict)
    """Version → epoch, for validations that must be requested and are not in the journal yet."""
    bases: dict[int, int] = field(default_factory=dict)
    """Version above `covered` → the version that its client started from. Empty if neither rule nor codec needs it."""
    covered: int = 0
    """The version after which updates may have to be applied again, so that their uploads are kept: the end of the last
    closed epoch or, if the job may roll back, the end of the last good epoch but one."""
    taken: dict[int, dict[int, int]] = field(default_factory=dict)
    """Epoch → shard → the mark of the applied upload, for the last epochs. Only kept if hosts keep the residuals of
    their uploads."""
    rewritten: int = 0
    """The newest version whose row was rewritten from the store. No uploads up to this version are kept, and no
    snapshots before it."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the state of a job before its first event."""
        following = Following(**{name: getattr(plan, name) for name in Following.__dataclass_fields__})
        return cls(following, JobTrust.of(plan.trust, plan.shards, plan.monitor))

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event, in a time that does not depend on how many workunits are open.

        Most of the code runs before the history gets the event. Code before that therefore finds the workunit still
        open and its subtask not yet applied; code after it (`_cover`) finds the epoch closed.
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
                # A workunit lists the marks of the last TOLD_EPOCHS epochs only, and `rolling` is at most one epoch
                # ahead of a straggler.
                self.taken.pop(event.epoch - TOLD_EPOCHS + 1, None)
            case EvaluationWanted(version, _, split):
                if split == VALIDATION:
                    self.due.pop(version, None)
            case RolledBack():
                self._record_rollback(event)
            case RowsRewritten():
                self.rewritten = event.version
            case StopDecided():
                # A job that is reopened plans its retries from the subtasks that are not applied.
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
        """Apply an event of a single workunit to the attempts at its subtask."""
        match event:
            case WorkunitCreated():
                self.tries.record_created(WorkunitName.parse(event.workunit))
            case UpdateApplied():
                self._record_applied(event)
            case UpdateRefused():
                is_a_try = blame_of(event.refusal) is not Blame.HOST  # with enough such hosts none would be left to try
                self._plan_retry(event.workunit, self.trust.who(event.workunit, event.host) if is_a_try else None)
            case WorkunitFailed():
                self._plan_retry(event.workunit, self.trust.who(event.workunit))
            case WorkunitCancelled():
                self._plan_retry(event.workunit)
            # The server's own training is the last resort: if it fails too, no host can be expected to succeed. If the
            # workunit is no longer open, its subtask was applied in the meantime.
            case SubtaskTried() if event.error and event.workunit in self.history.open:
                self.tries.exhausted = True
            case _:
                pass

    @property
    def is_settled(self) -> bool:
        """Whether the job may end: no subtask must be retrained, and no upload must still be verified."""
        return not self.tries.again and self.trust.is_verified(self.history.version)

    def taken_marks(self, epoch: int) -> str | None:
        """Return the marks of the last epochs' applied uploads (`Workunit.taken`); None if hosts keep no residuals."""
        if not self.plan.hosts_remember:
            return None
        epochs, shards = range(epoch - TOLD_EPOCHS + 1, epoch + 1), range(self.plan.shards)
        return bytes(self.taken.get(epoch, {}).get(shard, 0) for epoch in epochs for shard in shards).hex()

    # -- called before the history has the event

    def _record_applied(self, event: UpdateApplied) -> None:
        """Apply an applied update: its subtask needs no more attempts, except for the missing part of a partial one."""
        name = self.history.open.get(event.workunit) or WorkunitName.parse(event.workunit)
        # Without these snapshots the store cannot be restored: the rule, or a codec of differences, needs the weights
        # that the client started from.
        if self.plan.needs_bases:
            self.bases[event.version] = event.base_version
        if self.plan.hosts_remember:
            self.taken.setdefault(name.epoch, {})[name.shard] = upload_mark(event.workunit, event.train_s)
        self.tries.record_applied(name)
        # This comes after `record_applied`, which forgets the subtask: the rest of a partial upload is a new turn with
        # its own key (decision 122).
        if event.is_part:
            self.tries.make_again(name)
        self.tries.own_in_a_row = self.tries.own_in_a_row + 1 if name.is_own else 0
        if self.tries.own_in_a_row >= self.plan.tries:  # no host uploads anything: the operator should know
            self.tries.exhausted = True
        # Versions below `rewritten` were rewritten from the store's records and have no snapshot that could be
        # measured.
        if event.version >= self.rewritten and is_validated(self.plan.validate_every, event.version):
            self._want_validation(event.version, 0 if name.turn else name.epoch)

    def _plan_retry(self, workunit: str, failed: str | None = None) -> None:
        """Plan the next attempt after an open one has ended; `failed` is the host to blame, or None."""
        name = self.history.open.get(workunit)
        # An attempt that is not open has already been handled: two rows may record the same end, as after a kill. The
        # server's own attempt never uses up a try of hosts.
        if name is not None and not name.is_own and not self._is_done(name):
            allowed = self.trust.tries_allowed(self.plan.tries)
            self.tries.plan_retry(name, failed, self.trust, self.history.open, allowed)

    def _is_done(self, name: WorkunitName) -> bool:
        """Return whether the subtask of an attempt needs no more attempts: it is applied and not being retrained."""
        return self.history.is_applied(name.epoch, name.shard) and name.turn != self.tries.again.get(
            (name.epoch, name.shard)
        )

    def _record_rollback(self, event: RolledBack) -> None:
        """Apply a rollback: plan retries, without counting a try, and validate the version that it made."""
        for workunit in event.overtaken(self.history.open):
            self._plan_retry(workunit)
        for workunit in event.again:
            self._make_again(WorkunitName.parse(workunit))
        self.covered = min(self.covered, event.to)
        self._want_validation(event.version, 0)

    def _make_again(self, name: WorkunitName) -> None:
        """Plan to retrain a subtask whose update no longer counts."""
        self.taken.get(name.epoch, {}).pop(name.shard, None)
        self.tries.make_again(name)

    def _want_validation(self, version: int, epoch: int) -> None:
        """Mark a version as due for validation, unless it is due, requested or evaluated. Epoch 0 means none."""
        if version not in self.due and not self.history.is_announced(version, VALIDATION):
            self.due[version] = epoch

    # -- called after the history has the event

    def _cover(self) -> None:
        """Update `covered`, and forget the bases of updates that will not be applied again."""
        history = self.history
        # The uploads up to this version are deleted, whichever version the job is rolled back to.
        covered = self.trust.covered(history.end_of(len(history.closed)), self.covered)
        if covered != self.covered:
            self.covered = covered
            self.bases = {version: base for version, base in self.bases.items() if version > covered}
