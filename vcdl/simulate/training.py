"""Train the subtasks of a simulation on this machine, in worker processes; those that are due first come first."""

import heapq
from collections import Counter
from collections.abc import Collection
from itertools import count
from typing import Protocol

from vcdl.local.grid import LocalGrid, LocalSettings
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged

_HUNG_S = 6 * 3600.0
"""Real seconds after which a worker counts as dead."""
_TRIES = 3
"""Most attempts at a subtask: a worker may die once by chance, but a faulty subtask fails each time."""
_WAIT_S = 1.0
"""Real seconds to wait for a worker before looking at all of them again, so that a dead one is noticed soon."""


class SubtaskTraining(Protocol):
    """Trains the subtasks of simulated clients, in real time.

    Call `begin` for each subtask and later `outcome` or `cancel`; call `look` regularly in between.
    """

    def start(self) -> None:
        """Start the workers.

        Raises:
            GridError: They cannot start.
        """
        ...

    def begin(self, staged: Staged, due_s: float) -> None:
        """Queue a subtask for training; among the waiting ones, the one with the lowest `due_s` is trained first.

        Args:
            staged: The subtask.
            due_s: Virtual time at which its upload is needed.
        """
        ...

    def look(self) -> None:
        """Collect finished trainings, and give idle workers their next subtasks, without waiting.

        Raises:
            GridError, RunFolderError: A worker or the folder cannot be used.
        """
        ...

    def outcome(self, workunit: str) -> Outcome:
        """Wait for a subtask, and return its upload, or the reason why there is none.

        Raises:
            GridError, RunFolderError: A worker or the folder cannot be used.
        """
        ...

    def done(self, workunit: str, version: int | None) -> None:
        """Forget a finished workunit and delete its files.

        Args:
            workunit: Name of the workunit.
            version: The version that its upload created, or None if it created none.
        """
        ...

    def cancel(self, workunits: Collection[str]) -> None:
        """Drop subtasks whose upload is not needed; their training is ended."""
        ...

    def close(self) -> None:
        """Stop all processes."""
        ...


class PooledTraining:
    """Trains in the worker processes of a local grid, which end with this process.

    A subtask whose worker fails is tried _TRIES times, so that a fault of this machine is no fault of a simulated
    client.
    """

    def __init__(self, folder: RunFolder, workers: int) -> None:
        self._workers = workers
        settings = LocalSettings(
            workers=workers, threads=1, queue_ahead=0, timeout_s=_HUNG_S, worker_module="vcdl.simulate.shard_trainer"
        )
        self._grid = LocalGrid(folder, settings)
        self._waiting: list[tuple[float, int, Staged]] = []
        self._numbers = count()
        self._training: dict[str, tuple[float, Staged]] = {}
        self._ended: dict[str, Outcome] = {}
        self._failures: Counter[str] = Counter()

    def start(self) -> None:
        self._grid.start()

    def begin(self, staged: Staged, due_s: float) -> None:
        # Two trainings in one slot would write over each other's checkpoint.
        while any(task.workunit == staged.workunit.name for task in self._grid.running()):
            self._grid.wait(_WAIT_S)  # the subtask was cancelled, and its slot is still in use
        heapq.heappush(self._waiting, (due_s, next(self._numbers), staged))
        self.look()

    def look(self) -> None:
        # Real starts are read and dropped, because only those of simulated clients matter and the list would grow.
        self._grid.sent()
        self._grid.wait(0)
        for workunit in list(self._training):  # few, while a thousand finished ones may wait for their moment
            outcome = self._grid.outcome(workunit)
            if outcome is not None:
                self._take_in(outcome)
        while self._waiting and len(self._training) < self._workers:
            due_s, _, staged = heapq.heappop(self._waiting)
            self._training[staged.workunit.name] = due_s, staged
            self._grid.submit([staged])

    def outcome(self, workunit: str) -> Outcome:
        self.look()
        while workunit not in self._ended:
            self._grid.wait(_WAIT_S)
            self.look()
        return self._ended[workunit]

    def done(self, workunit: str, version: int | None) -> None:
        self._grid.done(workunit, version)
        self._ended.pop(workunit, None)
        self._failures.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        self._waiting = [item for item in self._waiting if item[2].workunit.name not in workunits]
        heapq.heapify(self._waiting)
        self._grid.cancel(workunits)
        for workunit in workunits:
            self._training.pop(workunit, None)
            self._ended.pop(workunit, None)

    def close(self) -> None:
        self._grid.close()

    def _take_in(self, outcome: Outcome) -> None:
        """Record the outcome of a training, or queue the subtask again after a failure."""
        workunit = outcome.workunit
        due_s, staged = self._training.pop(workunit)
        self._failures[workunit] += isinstance(outcome, GaveUp)
        # A failure here is this machine's, and must not become a failure of the simulated client.
        if isinstance(outcome, GaveUp) and self._failures[workunit] < _TRIES:
            self._grid.done(workunit)
            heapq.heappush(self._waiting, (due_s, next(self._numbers), staged))
        else:
            self._ended[workunit] = outcome
