"""The real training behind a simulated fleet: worker processes of this machine, one thread each, as many as it has cores.

What comes out depends on the workunit's inputs alone, so it does not matter when and where it is trained; whichever the fleet needs
first is trained first, which keeps all cores busy.
"""

import heapq
from collections import Counter
from collections.abc import Collection
from itertools import count
from typing import Protocol

from vcdl.grids.base import GaveUp, Outcome, Staged
from vcdl.grids.local import LocalGrid, LocalSettings
from vcdl.run.folder import RunFolder

_HUNG_S = 6 * 3600.0
"""Real time after which a worker is taken for dead."""
_TRIES = 3
"""Of a subtask that fails here: what killed a worker once need not do so again, what the subtask does wrong it does each time."""
_WAIT_S = 1.0


class Training(Protocol):
    """Trains subtasks for real; one that was begun must be waited for, or cancelled."""

    def start(self) -> None:
        """Get ready. Raises GridError."""
        ...

    def begin(self, staged: Staged, due_s: float) -> None:
        """Train this by and by: the sooner it is due (virtual seconds), the earlier."""
        ...

    def look(self) -> None:
        """Keep the workers at work; to be called now and then. Raises GridError, RunFolderError."""
        ...

    def outcome(self, workunit: str) -> Outcome:
        """Wait for the upload, or for the reason why there is none. Raises GridError, RunFolderError."""
        ...

    def done(self, workunit: str, version: int | None) -> None:
        """Forget a subtask and its files; `version`: that its upload made."""
        ...

    def cancel(self, workunits: Collection[str]) -> None:
        """They need not be trained."""
        ...

    def close(self) -> None:
        """Leave no process behind."""
        ...


class PooledTraining:
    """Trains on the embedded local grid; its workers outlive nothing: they end with this process."""

    def __init__(self, folder: RunFolder, workers: int) -> None:
        self._workers = workers
        settings = LocalSettings(
            workers=workers, threads=1, ahead=0, timeout_s=_HUNG_S, worker_module="vcdl.simulate.worker"
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
        heapq.heappush(self._waiting, (due_s, next(self._numbers), staged))
        self.look()

    def look(self) -> None:
        self._grid.sent()
        for outcome in self._grid.claim():
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
        workunit = outcome.workunit
        if workunit not in self._training:
            return
        due_s, staged = self._training.pop(workunit)
        self._failures[workunit] += isinstance(outcome, GaveUp)
        if isinstance(outcome, GaveUp) and self._failures[workunit] < _TRIES:
            self._grid.done(workunit)
            heapq.heappush(self._waiting, (due_s, next(self._numbers), staged))
        else:
            self._ended[workunit] = outcome
