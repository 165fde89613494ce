"""A job on the embedded local grid: one process is coordinator, work generator and assimilator; workers and evaluator are its children.

With `grid > servers` above 1, or `auto`, the uploads are assimilated by parameter servers in processes of their own instead.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from vcdl.coordinator import Coordinator, StopReason
from vcdl.errors import JournalUnavailable, StoreLost, Unavailable
from vcdl.events import RunPaused, RunReopened, RunStarted, VersionEvaluated
from vcdl.grids.local import LocalGrid, LocalSettings
from vcdl.grids.upload_folder import set_strays_aside
from vcdl.job import Job, load_frozen_job
from vcdl.journal import Journal
from vcdl.parameter_server import ServerParts
from vcdl.patience import Patience
from vcdl.plan import Plan
from vcdl.processes.child import ChildProcess
from vcdl.processes.server_pool import ServerPool
from vcdl.report.onlooker import Onlooker, Shielded
from vcdl.run.downloads import Downloads
from vcdl.run.folder import RunFolder
from vcdl.run.leftovers import sweep
from vcdl.run.prepared import Prepared, prepare, store_settings
from vcdl.run.recovery import drop_weights
from vcdl.stores.open import import_client_library
from vcdl.work_generator import WorkGenerator

_WAIT_S = 0.1
"""A worker's word ends the wait at once; this is how late an evaluation, a timeout or a stop request is seen."""


class LocalRun:
    """Runs the job of a folder; whoever calls it holds the folder's RunLock."""

    def __init__(self, folder: RunFolder, onlooker: Onlooker) -> None:
        self._folder = folder
        self._onlooker = Shielded(onlooker)
        self._job = load_frozen_job(folder.job_file)
        self._interrupted: str | None = None

    def run(self) -> StopReason | None:
        """Run the job to its end and say why it ended; None: it was interrupted and can go on.

        Raises a VcdlError when the run cannot go on; nothing that was assimilated is lost then.
        """
        import_client_library(store_settings(self._job, self._folder))
        self._folder.create()
        self._folder.stop_request.unlink(missing_ok=True)
        sweep(self._folder)
        set_strays_aside(self._folder)
        with ExitStack() as closing:
            grid = LocalGrid(self._folder, _local_settings(self._job))
            closing.callback(grid.close)
            grid.start()  # the workers import Keras while the data is cut
            prepared = prepare(self._folder, self._job, self._onlooker)
            journal = Journal.at(self._folder.journal_file)
            closing.callback(journal.close)
            server = ServerParts.of(self._folder, self._job, prepared, journal, grid, self._job.validate_every)
            closing.callback(server.store.close)
            evaluator = ChildProcess("vcdl.evaluator", self._folder)
            closing.callback(evaluator.close)
            pool = ServerPool.of(self._folder, self._job.grid.servers)
            closing.callback(pool.close)
            with self._signals_noted():
                return self._loop(grid, evaluator, pool, journal, server, prepared)

    def _loop(
        self,
        grid: LocalGrid,
        evaluator: ChildProcess,
        pool: ServerPool,
        journal: Journal,
        server: ServerParts,
        prepared: Prepared,
    ) -> StopReason | None:
        job, folder = self._job, self._folder
        plan = Plan.of(job, prepared.has_test, prepared.shard_samples)
        coordinator = Coordinator(plan)
        shards = tuple(folder.shard(number) for number in range(plan.shards))
        generator = WorkGenerator(
            job.name,
            job.seed,
            prepared.training(job),
            shards,
            folder,
            coordinator,
            journal,
            server.snapshots,
            grid,
            Downloads(folder, prepared.layout, job.transport.told),
            job.keeps_uploads,
        )
        earlier = generator.follow()
        self._onlooker.events(earlier)
        if coordinator.finished and coordinator.stopped is not None:
            if coordinator.stopped.reason != StopReason.SUBTASK_FAILED:
                return StopReason(coordinator.stopped.reason)
            journal.append(RunReopened())
        journal.append(RunStarted(resumed=bool(earlier)))
        self._onlooker.events(generator.follow())
        server.catch_up(coordinator.version)
        self._onlooker.phase("starting the workers")
        patience, not_before_s, is_lost = Patience(), 0.0, False
        while not coordinator.finished:
            if self._interrupted is None and folder.stop_request.exists():
                self._interrupted = "stop was requested"
            if self._interrupted is not None:
                self._pause(grid, journal, generator)
                return None
            if time.monotonic() >= not_before_s:
                try:
                    if is_lost:
                        folded = server.restore()
                        self._onlooker.phase(f"the weights are restored, {folded} updates were folded in again")
                        is_lost = False
                    self._step(grid, evaluator, pool, server, generator)
                    patience.reset()
                    self._onlooker.held_up(str(grid.shortage) if grid.shortage else None)
                except Unavailable as away:
                    not_before_s = time.monotonic() + patience.next_wait_s()
                    self._onlooker.held_up(str(away))
                except StoreLost as lost:
                    self._onlooker.phase(str(lost))
                    is_lost = True
            self._onlooker.tasks(grid.running(), grid.waiting)
            if not coordinator.finished:
                grid.wait(_WAIT_S)
        if coordinator.stopped is None:
            return None
        pool.close()
        drop_weights(server.store, server.snapshots, coordinator.stopped)
        return StopReason(coordinator.stopped.reason)

    def _step(
        self, grid: LocalGrid, evaluator: ChildProcess, pool: ServerPool, server: ServerParts, generator: WorkGenerator
    ) -> None:
        """Assimilate what has come and do what follows from it. Raises Unavailable: the next one does what this one could not."""
        coordinator = generator.coordinator
        if coordinator.stopped is None:
            server.assimilator.run_once()
        new = generator.run_once(time.time())
        self._onlooker.events(new)
        evaluator.watch(any(isinstance(recorded.event, VersionEvaluated) for recorded in new))
        if coordinator.stopped is None:
            pool.look(new)
        else:
            pool.close()
        generator.record_sent()

    def _pause(self, grid: LocalGrid, journal: Journal, generator: WorkGenerator) -> None:
        self._onlooker.phase("stopping: the workers write their checkpoints")
        grid.pause()
        with contextlib.suppress(JournalUnavailable):  # without a word it will look killed, and goes on as well
            journal.append(RunPaused(self._interrupted or "interrupted"))
        self._onlooker.events(generator.follow())
        self._folder.stop_request.unlink(missing_ok=True)

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and SIGHUP end the run in good order; a second one ends it at once."""

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


def _local_settings(job: Job) -> LocalSettings:
    return LocalSettings(
        workers=len(os.sched_getaffinity(0)) if job.grid.workers == "auto" else job.grid.workers,
        threads=job.grid.threads,
        ahead=0 if job.schedule.ahead == "auto" else job.schedule.ahead,
        timeout_s=job.grid.timeout_s,
        hands_out_uploads=job.grid.servers == 1,
    )
