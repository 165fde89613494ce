"""The work generator carries out the coordinator's actions: workunits, snapshots, evaluations, the job's end.

It writes the journal before it calls the grid. If it is killed in between, a workunit is announced and not submitted,
never the other way round. The next process submits it, and so does the next step if this one fails, for example on a
full disk.
"""

from collections.abc import Callable, Sequence
from functools import partial

from vcdl.errors import RunFolderError, folder_errors, for_shell
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RolledBack,
    RunFinished,
    RunPaused,
    StopDecided,
    WeightsPublished,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitSent,
)
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState, keep_history
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
from vcdl.loop.grid import Grid
from vcdl.loop.recovery import restore_store
from vcdl.loop.rollback import roll_back, take_back
from vcdl.run.folder import RestoreLock, RunFolder
from vcdl.run.kept_weights import Snapshots, discard_kept_uploads
from vcdl.run.run import Run
from vcdl.run.staging import stage
from vcdl.trust.job_trust import RollBack, TakeBack
from vcdl.wire.workunit import WorkunitName

_SWEPT_FOR_AN_EVENT = 16
"""Files checked for each event: with 10 000 versions in use, at most 6 % more are on the disk for a while."""


class WorkGenerator:
    """Follows the journal of one run, and carries out what its coordinator decides.

    Only one process at a time may do so for a run. It may be killed at any moment: the next one finds in the journal
    what was announced, and submits it.
    """

    def __init__(self, run: Run, coordinator: Coordinator, journal: Journal, snapshots: Snapshots, grid: Grid) -> None:
        self._run = run
        self._coordinator = coordinator
        self._journal = journal
        self._snapshots = snapshots
        self._grid = grid
        self._downloads = run.downloads()
        job = coordinator.state
        self._job = KeptState(journal, "job", job, settings=repr(job.plan), code=("loop", "trust"))
        self._has_begun = False
        self._snapshots_in_use: frozenset[int] = frozenset()
        self._unswept = 0
        """Number of events since unused weights were last removed."""
        self._may_be_behind = False
        """Whether the journal may contain a rollback that the store has not followed."""
        self._is_handed_over = False
        """Whether the grid is known to have all workunits that the journal announces."""
        self._unreported: list[Recorded] = []
        """Events that the coordinator has applied and no caller has received yet."""
        self._unrecorded: list[WorkunitSent] = []
        """Started workunits that the grid reported and the journal does not contain yet."""

    @property
    def _history(self) -> JobHistory:
        return self._coordinator.history

    @property
    def last_id(self) -> int:
        """The id of the last event that the coordinator has applied; 0 before the first one."""
        return self._job.last_id

    def begin(self) -> bool:
        """Load the state that an earlier process saved, and apply the later events, without reporting them.

        Returns:
            False if this was done before.

        Raises:
            JournalError: The journal cannot be read.
        """
        if self._has_begun:
            return False
        self._coordinator.state = self._job.load().advance()
        self._may_be_behind = bool(self._history.rollbacks)
        self._unswept = 1
        self._has_begun = True
        self.keep_state()
        return True

    def keep_state(self, *, at_once: bool = False) -> None:
        """Store the coordinator's state in the journal if many events are new, for restarts and for readers.

        Args:
            at_once: Store it if even one event is new.

        Raises:
            JournalError: The journal cannot be written.
        """
        if self._job.save(at_once=at_once):
            keep_history(self._journal, self._history, self._job.last_id)

    def follow(self) -> Sequence[Recorded]:
        """Apply the new events of the journal, and return those that the caller has not received yet.

        Raises:
            JournalError: The journal cannot be read.
        """
        self._follow_new()
        return self._take_unreported()

    def look_again(self) -> None:
        """Make the next `run_once` check that the grid has all workunits, and that all needed snapshots exist."""
        self._is_handed_over = False

    def record_sent(self) -> None:
        """Append to the journal which workunits clients have started since the last call.

        Raises:
            JournalError, GridError: The journal or the grid cannot be reached.
        """
        self._unrecorded += self._grid.sent()
        self._journal.append(*self._unrecorded)
        self._unrecorded.clear()

    def run_once(self, now_s: float) -> Sequence[Recorded]:
        """Apply the journal's new events, carry out the actions that are due, and return the events new to the caller.

        Raises:
            Unavailable: Something cannot be reached. Call again: the next call does what this one did not.
            VcdlError: The run cannot continue.
        """
        self._follow_new()
        if self._may_be_behind:
            self._finish_rollback()
        # The folder is checked in every step, because somebody may delete it while the run is in progress.
        if not self._is_handed_over or not self._run.folder.snapshots.is_dir():
            self._repair_snapshots()
            self._hand_over()
        self._is_handed_over = False  # until the end of this step: after a failed one `_hand_over` runs again
        self._grid.refresh()
        # Actions follow from the state, so a second call may return more (decision 003). Each must show as an event
        # that `_follow_new` finds: otherwise it would be returned forever.
        while actions := self._coordinator.actions(now_s, wanted := self._wanted_workunits()):
            self._carry_out(actions)
            self._follow_new()
            self._grid.refresh()
        if self._history.stop is None:
            # Copy late subtasks only after everything new is created: a second copy must not take the place of a
            # subtask that no host has yet.
            self._grid.replicate_late(queue_empty=len(self._history.open) < wanted)
        self._is_handed_over = True
        if self._unswept * _SWEPT_FOR_AN_EVENT >= len(self._snapshots_in_use) or self._history.stop is not None:
            self._discard_unused()
        return self._take_unreported()

    def _wanted_workunits(self) -> int:
        """Return how many workunits should be open now: the grid's target less the slots left free in the ramp-up."""
        slots = self._grid.slots()
        return self._grid.target_open_workunits() - (
            0 if slots is None else self._coordinator.slots_to_leave_free(slots)
        )

    def _discard_unused(self) -> None:
        """Remove weights that are no longer needed, from the disk and from the grid."""
        in_use = frozenset(self._coordinator.versions_in_use)
        # The grid forgets them first: its files are links to the snapshots, or named after them.
        if in_use != self._snapshots_in_use:
            self._grid.discard_params(in_use)
            if not self._run.job.keeps_uploads:
                self._snapshots.discard_all_but(in_use | self._to_fold_again_with())
            self._snapshots_in_use = in_use
        self._downloads.discard_all_but(in_use)  # a pilot may start with a published version that is no workunit's base
        self._unswept = 0

    def _follow_new(self) -> None:
        self.begin()
        self._job.advance(self._note)

    def _note(self, recorded: Recorded) -> None:
        """Remember an applied event for the caller, and what the next step must check because of it."""
        self._unreported.append(recorded)
        self._unswept += 1
        if isinstance(recorded.event, RunPaused):
            self._is_handed_over = False  # running workunits were withdrawn
        elif isinstance(recorded.event, RolledBack):
            self._may_be_behind = True
        self.keep_state()

    def _take_unreported(self) -> Sequence[Recorded]:
        new, self._unreported = self._unreported, []
        return new

    def _to_fold_again_with(self) -> set[int]:
        return self._coordinator.versions_to_fold_again_with if self._run.folder.kept_uploads.is_dir() else set()

    def _repair_snapshots(self) -> None:
        """Replace missing or damaged snapshots that open workunits or evaluations need, as far as possible.

        The newest snapshot is written again from the store. In a `rolling` job, open workunits that start from another
        missing version are cancelled, and their subtasks are retried from the newest weights.

        Raises:
            RunFolderError: A missing snapshot is needed for an evaluation, as the job's result, or by an `epoch` job.
        """
        run, snapshots, history = self._run, self._snapshots, self._history
        kept_by = {version for version, _ in history.wanted} | ({history.stop.version} if history.stop else set())
        missing = {version for version in kept_by | set(history.bases) if not snapshots.has(version)}
        if not missing:
            return
        with folder_errors(run.folder.path):
            run.folder.snapshots.mkdir(exist_ok=True)
        # The store still has the newest version. All other versions exist in files only.
        missing.discard(snapshots.keep_newest())
        if run.job.pacing.kind == "rolling":
            begun = [workunit for workunit, name in self._history.open.items() if name.base_version in missing]
            # Tell the grid first: a workunit whose cancellation is in the journal is never checked again, and would
            # keep running.
            self._grid.cancel(begun)
            self._journal.append(*map(WorkunitCancelled, begun))
            self._follow_new()
            missing &= kept_by
        if missing:
            raise RunFolderError(_words_of_missing(sorted(missing), run.folder))

    def _hand_over(self) -> None:
        """Submit open workunits that the grid does not have: the process that announced them was killed, or failed."""
        created, state = self._history.created, self._coordinator.state
        open_here = self._history.open.items()
        # The evaluator trains the server's own attempts, so no grid ever has them.
        missing = {workunit: n for workunit, n in open_here if not (n.is_own or self._grid.has(workunit))}
        self._grid.submit(
            [
                stage(self._run, name, created[workunit].rate, created[workunit].begins, state.taken_marks(name.epoch))
                for workunit, name in missing.items()
            ]
        )

    def _carry_out(self, actions: Sequence[Action]) -> None:
        """Carry out actions, so that each shows as an event in the journal."""
        # Create all of them in one step: the learning rate depends on how many workunits are created together (decision
        # 019).
        self._create([action for action in actions if isinstance(action, Create)])
        for action in actions:
            match action:
                case CloseEpoch(epoch):
                    self._keep(partial(EpochClosed, epoch))
                    self._follow_new()
                    # Delete the uploads only once the snapshot is on the disk and in the journal: until then a lost
                    # store can be rebuilt from the uploads only.
                    if not self._run.job.keeps_uploads:
                        discard_kept_uploads(self._run.folder, self._coordinator.state.covered)
                case EvaluateNewest():
                    self._journal.append(EvaluationWanted(self._snapshots.keep_newest(), 0, VALIDATION))
                case Evaluate(version, epoch, split):
                    if not self._snapshots.ensure(version):
                        raise RunFolderError(_words_of_missing([version], self._run.folder))
                    self._journal.append(EvaluationWanted(version, epoch, split))
                case Publish():
                    self._publish()
                case RollBack() | TakeBack():
                    self._roll_back(action)
                case Stop(reason):
                    # Cancel before the row: a kill in between leaves open workunits, which are resubmitted, and the
                    # stop is decided again. The other order would leave clients training for a job that is over.
                    self._grid.cancel(set(self._history.open))
                    self._keep(partial(StopDecided, reason.value))
                case Finish():
                    self._journal.append(RunFinished())

    def _keep(self, event: Callable[[int, int], Event]) -> None:
        """Write a snapshot of the newest version, and record an event about it, under the restore lock.

        So each update in the snapshot has its journal row before the event, unless its server was killed.

        Args:
            event: Returns the event for the version and the number of updates that other servers overwrote.
        """
        with RestoreLock(self._run.folder).restoring():
            version = self._snapshots.keep_newest(durable=True)
            self._journal.append(event(version, self._snapshots.store.lost_updates()))

    def _roll_back(self, action: RollBack | TakeBack) -> None:
        """Carry out a rollback under the restore lock if it is still due, and cancel workunits of dropped weights."""
        run, coordinator = self._run, self._coordinator
        with RestoreLock(run.folder).restoring():
            self._follow_new()  # every fold is in the journal now
            # Rows that were written before this process got the lock may have changed what is due. The next call of
            # `actions` takes them into account.
            if coordinator.going_back != action:
                return
            if isinstance(action, RollBack):
                event = roll_back(run, self._snapshots, self._journal, action.collapse)
            else:
                event = take_back(run, self._snapshots, self._journal, action)
        # Cancel after the lock is released: the grid may be slow, and an upload that arrives meanwhile is superseded
        # anyway.
        self._grid.cancel(event.overtaken(dict(coordinator.history.open)))

    def _finish_rollback(self) -> None:
        """Finish a rollback that was recorded before its process was killed: restore the store to its version."""
        if self._history.stop is None:
            restore_store(self._run, self._snapshots.store, self._journal)
        self._may_be_behind = False

    def _create(self, creations: Sequence[Create]) -> None:
        """Announce workunits in the journal, then submit them to the grid."""
        if not creations:
            return
        newest, context = self._snapshots.keep_newest(), self._history.creation_context(len(creations))
        ends_by_time = self._run.job.training.target_s is not None
        items, events = [], []
        for create in creations:
            # Read the store once for all of them, so that workunits created together share a base and its file.
            base_version = newest if create.base_version is None else create.base_version
            name = WorkunitName(self._run.name, create.epoch, create.shard, create.attempt, base_version)
            rate = self._coordinator.rate(create.epoch, create.shard, context)
            # None otherwise, because an older client refuses an unknown field.
            begins = self._history.trained[create.shard] if ends_by_time else None
            items.append(stage(self._run, name, rate, begins, self._coordinator.state.taken_marks(create.epoch)))
            events.append(WorkunitCreated(items[-1].workunit.name, context.open, rate, begins))
        # The journal is written first (decision 004): the grid never has a workunit that the journal does not contain.
        self._journal.append(*events)
        self._grid.submit(items)

    def _publish(self) -> None:
        """Offer the newest weights.

        The event is recorded first: an upload that started from an unknown version is refused.
        """
        version = self._snapshots.keep_newest()
        self._journal.append(WeightsPublished(version))
        self._grid.publish(version, self._downloads.path(version))


def _words_of_missing(versions: Sequence[int], folder: RunFolder) -> str:
    which = ", ".join(map(str, versions))
    return (
        f"the weights of {'version' if len(versions) == 1 else 'versions'} {which} are damaged, or were deleted from "
        f"{folder.snapshots}, and the run still needs them to evaluate or to train: restore a copy of the files, and "
        f"`vcdl resume` continues. Without one, `vcdl export {for_shell(folder.path)} -o model.keras` writes the "
        "newest, and "
        f"`vcdl run {for_shell(folder.job_file)} --out DIR` restarts the job"
    )
