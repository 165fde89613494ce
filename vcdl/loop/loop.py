"""The loop of one run. Drivers differ in their grid and in what they wait for.

driver                          grid                     assimilates itself
vcdl.local.run                  worker processes         yes, or servers of its own do
vcdl.simulate.virtual_run       clients in virtual time  yes
vcdl.boinc.daemons              BOINC's clients          no: vcdl_assimilator does
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from vcdl.errors import JournalUnavailable, StoreError, StoreLost
from vcdl.journal.events import Recorded, RunPaused, RunReopened, RunStarted, StopReason
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.journal.packing import copy_of
from vcdl.loop.checked_files import check_files
from vcdl.loop.coordinator import Coordinator
from vcdl.loop.grid import Grid, Results
from vcdl.loop.parameter_server import ParameterServer
from vcdl.loop.plan import Plan
from vcdl.loop.recovery import drop_weights, restore_store
from vcdl.loop.rewritten_rows import rewrite_rows
from vcdl.loop.work_generator import WorkGenerator
from vcdl.run.run import Run
from vcdl.stores import WeightStore


class Loop:
    """Drives one run: call `start_or_resume` once, then `step` until `ended`, then `close`. Not thread-safe.

    It contains the coordinator, the work generator and, if this process applies uploads itself, a parameter server. The
    process may be killed at any moment; the next one continues from the journal and the store.
    """

    def __init__(self, run: Run, plan: Plan, journal: Journal, store: WeightStore, grid: Grid) -> None:
        self.run = run
        self.journal = journal
        self.coordinator = Coordinator(plan)
        self._store = store
        self._grid = grid
        self.snapshots = run.snapshots(store)
        self.generator = WorkGenerator(run, self.coordinator, journal, self.snapshots, grid)
        self.server: ParameterServer | None = None
        self._observer = ShieldedObserver(RunObserver())
        self._is_lost = False
        self._has_looked = False
        """Whether this process has checked whether store, journal and folder record the same updates."""

    @classmethod
    def of(
        cls,
        run: Run,
        grid: Grid,
        results: Results | None = None,
        *,
        plan: Plan | None = None,
        observer: RunObserver | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Open journal and store of a run, and create its loop over a grid.

        Args:
            run: The run.
            grid: Runs the subtasks.
            results: The outcomes that this process assimilates; None if other processes (parameter servers) do that.
            plan: Used instead of the plan that follows from the job.
            observer: Its hooks are called with events and phases; its exceptions are dropped.
            clock: Returns a simulation's time in seconds; None for the journal's own clock.

        Raises:
            StoreError, JournalError: They cannot be opened.
        """
        journal = run.journal(clock)
        try:
            loop = cls(run, Plan.of(run) if plan is None else plan, journal, run.store(journal), grid)
        # Only this object could close the journal's connection, and the caller does not get it.
        except StoreError:
            journal.close()
            raise
        if observer is not None:
            loop._observer = ShieldedObserver(observer)
        if results is not None:
            loop.server = ParameterServer(run, journal, loop._store, results)
        return loop

    def start_or_resume(self) -> bool:
        """Read the journal, record a new session of the run, and repair the store.

        A job that ended because a subtask kept failing is reopened.

        Returns:
            False if the job is over and nothing is left to do.

        Raises:
            Unavailable, StoreError, JournalError: The run cannot continue now.
        """
        self.follow()
        is_resumed = self.generator.last_id > 0
        stopped = self.coordinator.history.stop
        if self.coordinator.history.finished and stopped is not None:
            # Every other reason is final: its results are written, or only writing them is left to do.
            if stopped.reason != StopReason.SUBTASK_FAILED:
                return False
            self.journal.append(RunReopened())
        self.begin_session(resumed=is_resumed)
        # The store is restored after the session's first row: this may take minutes, and `status` should show the run
        # as running.
        if self.server is not None:
            self.server.catch_up()
        return True

    def begin_session(self, *, resumed: bool) -> None:
        """Record in the journal that a process drives the run from now on.

        Args:
            resumed: Whether an earlier process did so before.

        Raises:
            JournalError: The journal cannot be written.
        """
        monitor, trial = self.run.job.monitor, self.run.prepared.rate_trial
        self.journal.append(RunStarted(resumed, monitor.name, monitor.mode, trial.value))
        self.follow()

    def follow(self) -> Sequence[Recorded]:
        """Apply the journal's new events, pass them to the observer, and return them.

        Raises:
            JournalError: The journal cannot be read or written.
        """
        if self.generator.begin() and self.generator.last_id > 0:
            self._observer.begins(copy_of(self.coordinator.history))  # its own copy, which the observer may keep
        return self._notify_observer(self.generator.follow())

    def step(self) -> Sequence[Recorded]:
        """Assimilate the uploads that have arrived, carry out the actions that are due, and return the new events.

        If the store turns out to have lost its weights, nothing is returned, and the next step restores it.

        Raises:
            Unavailable: Something cannot be reached; the next step tries again.
            VcdlError: The run cannot continue.
        """
        try:
            if self._is_lost:
                restore_store(self.run, self._store, self.journal)
                self._is_lost = False
            # Do this once per process, before anything is folded. The rows come first, because the check of files uses
            # them. Both are repeated if the store is lost in between.
            if not self._has_looked and self.coordinator.history.stop is None:
                rewrite_rows(self.run, self._store, self.journal)
                check_files(self.run, self._store, self.journal)
                self._has_looked = True
            # Fold before acting: what arrived may close an epoch or end the job, and the generator below carries that
            # out in the same step.
            if self.server is not None and self.coordinator.history.stop is None:
                self.server.run_once()
            new = self._notify_observer(self.generator.run_once(self.journal.now_s()))
            # Record starts after the generator has run, so that a workunit's creation is in the journal before its
            # start.
            self.generator.record_sent()
        except StoreLost as lost:
            if self.coordinator.history.stop is not None:  # its weights were dropped
                raise
            self._is_lost = True
            self._observer.phase(str(lost))
            return ()
        return new

    def pause(self, why: str) -> Sequence[Recorded]:
        """Withdraw running workunits and end the session; the run can be resumed.

        Raises:
            GridError, JournalError: The grid or the journal cannot be reached.
        """
        # The row comes after the withdrawal. If it is missing, because the process is killed in between or the disk is
        # full, the run counts as killed, and can be resumed as well.
        self._grid.pause()
        with suppress(JournalUnavailable):
            self.journal.append(RunPaused(why))
        new = self.follow()
        with suppress(JournalUnavailable):
            self.generator.keep_state(at_once=True)
        return new

    @property
    def is_up_to_date(self) -> bool:
        """Whether the loop has applied every row of the journal.

        If so, until a row is added, a step only handles news of the grid and of the clock.

        Raises:
            JournalError: The journal cannot be read.
        """
        return self.generator.last_id == self.journal.last_id()

    @property
    def ended(self) -> StopReason | None:
        """Why the job ended, or None if it is not over."""
        stopped = self.coordinator.history.stop
        return StopReason(stopped.reason) if self.coordinator.history.finished and stopped is not None else None

    def drop_weights(self) -> None:
        """Remove the weights from the store if the job is over and cannot be resumed. Its snapshots stay."""
        if self.coordinator.history.stop is not None:
            drop_weights(self._store, self.snapshots, self.coordinator.history.stop)

    def abandon_weights(self) -> None:
        """Remove the weights from the store of a run that will not be resumed, whether or not its job is over.

        Do nothing if the store is unreachable.
        """
        with suppress(StoreError):  # an unreachable server keeps them: that costs it room, and no run a result
            self._store.drop()

    def close(self) -> None:
        """Close journal and store."""
        self.journal.close()
        self._store.close()

    def _notify_observer(self, new: Sequence[Recorded]) -> Sequence[Recorded]:
        """Pass events to the observer, and return them."""
        self._observer.events(new)
        return new
