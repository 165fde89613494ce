"""The embedded local grid: worker processes on this machine.

The grid keeps its state in two folders, so that a killed run can be resumed. `slots/<workunit>/` has the files and the
checkpoint of a workunit in training. `uploads/<workunit>.h5` is its update, until that is in the store. While the disk
is full, subtasks wait and do not fail.
"""

import contextlib
import errno
import os
import selectors
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import DISK_FULL, GridError, RunFolderError, RunFolderFull, folder_error, start_cure
from vcdl.errors.backoff import Attempts
from vcdl.journal.events import WorkunitSent
from vcdl.journal.observer import RunningTask
from vcdl.local.folder_grid import FolderGrid
from vcdl.local.slots import SlotFolders
from vcdl.local.worker_process import WorkerProcess
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.report.failure import how_it_died
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged
from vcdl.wire.workunit import OUTPUT_FILE

_START_ATTEMPTS = 10
"""Workers that die in a row before one is ready, after which the run ends: so many deaths are no accident."""
_QUIT_TIMEOUT_S = 20.0
"""Seconds in which all workers must write their checkpoints, enough for the largest models; slower ones are killed."""


@dataclass(frozen=True)
class LocalSettings:
    """The settings of the local grid."""

    workers: int
    threads: int
    """Threads of each worker."""
    queue_ahead: int
    """Number of workunits kept ready beyond those that run."""
    timeout_s: float
    """Most seconds of a subtask, from its start on a worker."""
    worker_module: str = "vcdl.client.worker"
    hands_out_uploads: bool = True
    """Whether `claim` returns uploads; False: separate parameter servers claim them, and `claim` returns failures."""
    allows_code: bool = False
    """Whether workers may run the job's own code."""


class LocalGrid(FolderGrid):
    """A grid of worker processes on this machine, for use by one thread.

    A worker that dies or exceeds the time limit is replaced, and its subtask fails with the cause as outcome. `close`
    kills all workers. After a kill of this process, a new grid over the same folder continues from slots and uploads.
    """

    def __init__(self, folder: RunFolder, settings: LocalSettings) -> None:
        super().__init__(folder, hands_out_uploads=settings.hands_out_uploads)
        self._settings = settings
        self._slots = SlotFolders(folder)
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerProcess] = []
        self._deaths_at_start = 0
        self._started = 0
        self._delivered: dict[str, set[Path]] = {}
        self._looks_for_room = Attempts()

    def start(self) -> None:
        self._take_up_uploads()
        while len(self._workers) < self._settings.workers:
            self._start_worker()

    # -- the interface of a grid

    def submit(self, staged: Sequence[Staged]) -> None:
        super().submit(staged)
        self._hand_out()

    def has(self, workunit: str) -> bool:
        return workunit in self._known

    def outcome(self, workunit: str) -> Outcome | None:
        """Return the workunit's outcome, or None if it had none by the last `wait`. `claim` returns the same one."""
        return self._outcomes.get(workunit)

    def done(self, workunit: str, version: int | None = None) -> None:
        super().done(workunit, version)
        if not any(worker.workunit == workunit for worker in self._workers):
            self._slots.remove(workunit)

    def cancel(self, workunits: Collection[str]) -> None:
        for worker in self._workers:
            if worker.workunit in workunits:
                worker.send(do="quit")
        for workunit in workunits:
            with contextlib.suppress(ValueError):
                self._waiting.remove(workunit)
            self.done(workunit)

    def target_open_workunits(self) -> int:
        return self._settings.workers + self._settings.queue_ahead

    slots = target_open_workunits

    # -- running

    def wait(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            self._listen_to(key.data)
        now_s = time.monotonic()  # it stops while the machine sleeps, as the workers do
        # The loop runs over a copy, as `_replace` changes the list.
        for worker in list(self._workers):
            if worker.workunit is not None and now_s - worker.since_s > self._settings.timeout_s:
                self._replace(worker, f"no result after {self._settings.timeout_s:g} s (grid > timeout_s)")
        self._hand_out()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def running(self) -> list[RunningTask]:
        return [
            RunningTask(worker.workunit, worker.name, worker.fraction, worker.since_s)
            for worker in self._workers
            if worker.workunit is not None
        ]

    def pause(self) -> None:
        """Drop the queue and let each worker write a checkpoint and quit, for at most `_QUIT_TIMEOUT_S` seconds.

        The slots stay, and the next session continues from the checkpoints. `close` kills workers that are slower.
        """
        self._waiting.clear()
        for worker in self._workers:
            worker.send(do="quit")
        deadline_s = time.monotonic() + _QUIT_TIMEOUT_S
        while any(worker.workunit for worker in self._workers) and time.monotonic() < deadline_s:
            for key, _ in self._selector.select(0.1):
                if self._take_in(key.data, *key.data.receive()):
                    self._remove(key.data)

    def close(self) -> None:
        for worker in self._workers:
            self._selector.unregister(worker)
            worker.kill()
        self._workers.clear()
        self._selector.close()

    def _at_clients(self) -> set[str]:
        return {worker.workunit for worker in self._workers if worker.workunit is not None}

    def _listen_to(self, worker: WorkerProcess) -> None:
        dead = self._take_in(worker, *worker.receive())
        if dead:
            self._replace(worker, None)

    def _take_in(self, worker: WorkerProcess, messages: list[dict[str, object]], dead: bool) -> bool:
        for message in messages:
            match message:
                case {"event": "ready"}:
                    worker.ready, self._deaths_at_start = True, 0
                case {"event": "progress", "fraction": float() | int() as fraction}:
                    worker.fraction = float(fraction)
                case {"event": "done"}:
                    self._handle_upload(worker)
                case {"event": "quit"}:
                    self._forget_slot_unless_open(worker)
                case {"event": "no_room"}:
                    self._handle_full_disk(worker)
                case {"event": "failed", "reason": str() as reason}:
                    self._gave_up(worker, reason)
        return dead

    def _handle_upload(self, worker: WorkerProcess) -> None:
        workunit, worker.workunit = worker.workunit, None
        if workunit is None:
            return
        if workunit in self._known:
            try:
                self._has_come(self._slots.take_over(workunit, worker.name))
            except OSError as error:
                if error.errno in DISK_FULL:
                    self._postpone(workunit, error)
                    return
                self._outcomes[workunit] = GaveUp(workunit, f"its {OUTPUT_FILE} cannot be moved: {error}")
            self._looks_for_room.record_success()
        self._slots.remove(workunit)

    def _gave_up(self, worker: WorkerProcess, reason: str) -> None:
        workunit, worker.workunit = worker.workunit, None
        if workunit is not None:
            self._slots.remove(workunit)
            if workunit in self._known:
                self._outcomes[workunit] = GaveUp(workunit, reason)

    def _handle_full_disk(self, worker: WorkerProcess) -> None:
        workunit, worker.workunit = worker.workunit, None
        if workunit is not None and workunit in self._known:
            self._postpone(workunit, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        elif workunit is not None:
            self._slots.remove(workunit)

    def _postpone(self, workunit: str, error: OSError) -> None:
        """Put a workunit whose disk was full back at the front of the queue, and hand out no workunit for a while.

        Its slot stays, so that its update or checkpoint is used later.

        Args:
            workunit: Its name.
            error: The error of the full disk.
        """
        self._waiting.appendleft(workunit)
        self._hold_back(folder_error(self._folder.path, error))

    def _forget_slot_unless_open(self, worker: WorkerProcess) -> None:
        workunit, worker.workunit = worker.workunit, None
        if workunit is not None and workunit not in self._known:
            self._slots.remove(workunit)

    # -- workers

    def _start_worker(self) -> None:
        self._started += 1
        try:
            worker = self._start_process()
        except OSError as error:
            raise GridError(
                f"cannot start a worker process: {error}; {start_cure(error)} or lower grid > workers"
            ) from error
        self._workers.append(worker)
        self._selector.register(worker, selectors.EVENT_READ, worker)

    def _start_process(self) -> WorkerProcess:
        settings = self._settings
        log = self._folder.workers_log
        worker = WorkerProcess.start(f"worker-{self._started}", settings.worker_module, settings.threads, log)
        if settings.allows_code:
            worker.allow_code()
        return worker

    def _replace(self, worker: WorkerProcess, reason: str | None) -> None:
        status = self._remove(worker)
        if not worker.ready:
            self._deaths_at_start += 1
            # A worker that dies before it is ready has no subtask yet: Keras, the driver or the memory is at fault, and
            # a new worker would die too.
            if self._deaths_at_start >= _START_ATTEMPTS:
                raise GridError(
                    f"{_START_ATTEMPTS} worker processes died before they were ready "
                    f"(the last with {how_it_died(status)}): {self._folder.workers_log} says why"
                )
        self._gave_up(worker, reason or f"its worker died ({how_it_died(status)})")
        self._start_worker()

    def _remove(self, worker: WorkerProcess) -> int:
        """Kill a worker, remove it from the grid, and return its exit status, negative for a signal."""
        self._selector.unregister(worker)
        self._workers.remove(worker)
        self._delivered.pop(worker.name, None)
        return worker.kill()

    def _hand_out(self) -> None:
        if not self._looks_for_room.is_due:
            return
        for worker in self._workers:
            if not self._waiting:
                return
            if worker.ready and worker.workunit is None:
                workunit = self._waiting[0]
                staged = self._known[workunit]
                if staged is not None:
                    try:
                        slot = self._slot_for(staged)
                    except RunFolderFull as full:
                        self._hold_back(full)
                        return
                    worker.train(workunit, slot, staged.samples)
                    self._sent.append(WorkunitSent(workunit, worker.name, self._bytes_down(worker.name, staged)))
                self._waiting.popleft()

    def _slot_for(self, staged: Staged) -> Path:
        """Prepare a workunit's slot with its files and return its path; after a full disk, check for room first.

        Success ends the shortage.

        Raises:
            RunFolderFull: The disk is full.
            RunFolderError: The slot cannot be written for another reason.
        """
        if self.shortage is not None:
            self._slots.check_room(staged)
        slot = self._slots.prepare(staged)
        self.shortage = None
        return slot

    def _hold_back(self, full: RunFolderError) -> None:
        self.shortage = full
        self._looks_for_room.record_failure(full)

    def _bytes_down(self, worker: str, staged: Staged) -> int:
        """Return the bytes that a BOINC client would download for a workunit, and record its sticky files as delivered.

        They are params, description, and the sticky files that were not delivered to this worker before.

        Args:
            worker: The worker's name.
            staged: The workunit's files.
        """
        have = self._delivered.setdefault(worker, set())
        new = staged.sticky - have
        have |= new
        fresh = sum(path.stat().st_size for path in (staged.params, *new))
        return fresh + len(staged.workunit.to_json().encode())
