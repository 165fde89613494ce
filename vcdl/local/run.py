"""Drive a run in this process, over any grid; evaluator, servers and local workers are its children.

The process may be killed at any moment. Its children then end too, and `vcdl resume` continues from journal, store and
the grid's folders. Ctrl-C or `vcdl stop` pauses the run instead: workers write checkpoints first.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType

from vcdl.errors.backoff import Attempts
from vcdl.files.atomic import sweep
from vcdl.job import Job
from vcdl.journal.events import EvaluatorDied, Recorded, StopReason, VersionEvaluated
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.local.child import ChildProcess
from vcdl.local.grid import LocalGrid, LocalSettings
from vcdl.local.server_pool import ServerPool
from vcdl.local.upload_folder import quarantine_orphans
from vcdl.local.warm_workers import end_warm_workers, fork_warm_workers
from vcdl.loop.grid import DrivenGrid
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan, Publishing
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.kind import RunKind
from vcdl.run.run import Run

_WAIT_S = 0.1
"""Most seconds to wait for a worker's message, because evaluations, time-outs and stop requests are noticed only
afterwards. A message ends the wait immediately."""


@contextmanager
def warm_workers_for(job: Job, kind: RunKind) -> Iterator[None]:
    """Import Keras and fork warm workers, one for each worker and the evaluator; after the block, end the unused ones.

    It must be called before any thread starts, such as that of a display, because a process with threads cannot fork
    safely.

    Args:
        job: The job.
        kind: The kind of run; some kinds have no workers of this machine.
    """
    fork_warm_workers((local_settings(job).workers if kind.has_workers else 0) + 1)
    try:
        yield
    finally:
        end_warm_workers()


def run_locally(folder: RunFolder, observer: RunObserver) -> StopReason | None:
    """Run the job of a folder with worker processes of this machine until it ends or is paused (see `run_over`)."""
    return run_over(folder, observer, lambda folder, job: LocalGrid(folder, local_settings(job)))


def run_over(
    folder: RunFolder,
    observer: RunObserver,
    open_grid: Callable[[RunFolder, Job], DrivenGrid],
    publishing: Publishing | None = None,
) -> StopReason | None:
    """Run the job of a folder over a grid until it ends or is interrupted. The caller must hold the folder's RunLock.

    Leftovers of a killed run are removed first, and foreign files among the uploads are moved to `quarantine`.

    Args:
        folder: The run's folder.
        observer: Called for each event.
        open_grid: Opens the grid.
        publishing: How the newest weights are offered to clients; None: they are not.

    Returns:
        Why it ended, or None if it was interrupted.

    Raises:
        VcdlError: The run cannot continue. Nothing that was assimilated is lost.
    """
    job = read_frozen(folder)
    if folder.prepared_file.exists():
        Run.open(folder).store_settings()  # another store than the run's is refused before anything starts
    folder.create()
    folder.stop_request.unlink(missing_ok=True)
    # The caller holds the run's lock, so no other process writes here, and each temporary file is a leftover.
    sweep(folder.path, below=True)
    quarantine_orphans(folder)
    with ExitStack() as closing:
        grid = open_grid(folder, job)
        closing.callback(grid.close)
        grid.start()  # workers import Keras while the data is cut
        run = prepare(folder, job, ShieldedObserver(observer))
        plan = replace(Plan.of(run), publishing=publishing)
        loop = Loop.of(run, grid, grid, plan=plan, observer=observer)
        closing.callback(loop.close)
        return _DrivenRun(loop, grid, observer, closing).drive()


class _DrivenRun:
    """Drives a loop over a grid, and keeps the evaluator and the parameter servers running meanwhile.

    Signals and a stop request are noted and pause the run at the next step. All children end with `closing`.
    """

    def __init__(self, loop: Loop, grid: DrivenGrid, observer: RunObserver, closing: ExitStack) -> None:
        folder = loop.run.folder
        self._loop = loop
        self._grid = grid
        self._observer = ShieldedObserver(observer)
        self._stop_request = folder.stop_request
        self._interrupted: str | None = None
        self._is_trained = False
        """Whether only evaluations are left, so that an evaluator that keeps dying ends the run."""
        self._evaluator = ChildProcess("vcdl.local.evaluator", folder)
        closing.callback(self._evaluator.close)
        self._servers = ServerPool(folder, loop.run.job.grid.servers)
        closing.callback(self._servers.close)

    def drive(self) -> StopReason | None:
        """Run the loop to the job's end and return the reason; None: the run was interrupted and can be resumed.

        At the end the servers are stopped and the job's weights are deleted from the store.
        """
        loop = self._loop
        with self._signals_noted():
            if loop.start_or_resume():
                self._observer.phase("starting the workers")
                self._step_until_the_end()
            if loop.ended is not None:
                self._servers.close()
                loop.drop_weights()
            return loop.ended

    def _step_until_the_end(self) -> None:
        steps = Attempts()
        while self._loop.ended is None:
            if self._interrupted is None and self._stop_request.exists():
                self._interrupted = "stop was requested"
            if self._interrupted is not None:
                self._pause(self._interrupted)
                return
            if steps.is_due:
                steps.attempt(self._step)
                self._observer.waiting_for(steps.why or (str(self._grid.shortage) if self._grid.shortage else None))
            self._observer.tasks(self._grid.running(), self._grid.waiting)
            if self._loop.ended is None:
                self._grid.wait(_WAIT_S)

    def _step(self) -> None:
        coordinator = self._loop.coordinator
        # The folder is read before the journal, because a server first writes its row and then removes the upload. In
        # the other order, an upload that was applied in between would look deleted.
        missing = self._grid.missing_uploads(coordinator.history.open)
        new = self._loop.step()  # reads the journal
        self._grid.lose(missing & coordinator.history.open.keys())
        self._watch_evaluator(new)
        if self._loop.coordinator.history.stop is None:
            self._servers.keep_running(new, is_needed=bool(coordinator.history.open))
        else:
            self._servers.close()

    def _watch_evaluator(self, new: Sequence[Recorded]) -> None:
        """Restart a dead evaluator, and record its death in the journal.

        While subtasks are open, an evaluator that keeps dying does not end the run. Once only evaluations are left, it
        does.

        Args:
            new: Events since the last call; an evaluation among them shows that the evaluator works.

        Raises:
            GridError, JournalError: It died too often, or the journal cannot be written.
        """
        died = self._evaluator.watch(any(isinstance(recorded.event, VersionEvaluated) for recorded in new))
        if died:
            self._loop.journal.append(EvaluatorDied(self._evaluator.death))
            self._loop.generator.look_again()  # what was to be measured may be gone
        if self._loop.coordinator.history.open:
            self._is_trained = False
        elif not self._is_trained:
            self._is_trained = True
            self._evaluator.try_anew()
        elif died and self._evaluator.is_hopeless:
            raise self._evaluator.hopeless()

    def _pause(self, why: str) -> None:
        self._observer.phase("stopping: the workers write their checkpoints")
        self._loop.pause(why)
        self._stop_request.unlink(missing_ok=True)

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP pause the run during the block; a second one raises KeyboardInterrupt.

        The earlier handlers are restored at the end.
        """

        def note(number: int, _frame: FrameType | None) -> None:
            if self._interrupted is not None:
                raise KeyboardInterrupt
            self._interrupted = f"interrupted by {signal.Signals(number).name}"

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def local_settings(job: Job) -> LocalSettings:
    """Return the settings of the local grid for a job; `queue_ahead: auto` is 0 here."""
    return LocalSettings(
        workers=job.workers,
        threads=job.grid.threads,
        queue_ahead=0 if job.pacing.queue_ahead == "auto" else job.pacing.queue_ahead,
        timeout_s=job.grid.timeout_s,
        hands_out_uploads=job.grid.servers == 1,
        allows_code=job.model.code is not None,
    )
