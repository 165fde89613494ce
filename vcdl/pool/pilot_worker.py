"""Keep a pilot's worker process running: start another one when it dies."""

import selectors
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcdl.errors import GridError, start_cure
from vcdl.local.worker_process import WorkerProcess
from vcdl.report.failure import how_it_died

_START_ATTEMPTS = 3
"""Processes that may die in a row before one of them is ready: after that the next ones would die, too."""


class PilotWorker:
    """A worker process that `wait` replaces by another one when it dies. Call `close` at the end."""

    def __init__(self, threads: int, log: Path, *, allows_code: bool = False) -> None:
        """Start the first process, without waiting until it is ready.

        Args:
            threads: Threads that it may use.
            log: The file for its output.
            allows_code: Whether it may run the code of a job.

        Raises:
            GridError: The process cannot be started.
        """
        self._allows_code = allows_code
        self._threads = threads
        self._log = log
        self._deaths = 0
        self._process = self._start()

    @property
    def ready(self) -> bool:
        """Whether the present process has started up, and so can train a workunit."""
        return self._process.ready

    def train(self, workunit: str, folder: Path) -> None:
        """Have the process train the workunit whose files are in `folder`; `wait` returns its events."""
        self._process.train(workunit, folder)

    def send(self, **command: Any) -> None:
        """Send the process a command of vcdl.client.worker, such as `do="finish"`."""
        self._process.send(**command)

    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        """Wait for events of the process, and start another one if it has died.

        Args:
            timeout_s: Most seconds to wait.

        Returns:
            The events of vcdl.client.worker; the last one is `{"event": "died", "how": …}` if the process has died.

        Raises:
            GridError: No worker can be started, or several died before they were ready.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._process, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return []
        events, dead = self._process.receive()
        for event in events:
            if event.get("event") == "ready":
                self._process.ready, self._deaths = True, 0
        return [*events, {"event": "died", "how": self._replace()}] if dead else events

    def close(self) -> None:
        """Kill the worker process; its training since the last checkpoint is lost."""
        self._process.kill()

    def _start(self) -> WorkerProcess:
        try:
            process = WorkerProcess.start("worker", "vcdl.client.worker", self._threads, self._log)
        except OSError as error:
            raise GridError(f"cannot start a worker process: {error}; {start_cure(error)}") from error
        if self._allows_code:
            process.allow_code()
        return process

    def _replace(self) -> str:
        """Start another process, and return how the old one died.

        Raises:
            GridError: `_START_ATTEMPTS` processes in a row died before they were ready, or none can be started.
        """
        if not self._process.ready:
            self._deaths += 1
        how = how_it_died(self._process.kill())
        if self._deaths >= _START_ATTEMPTS:
            raise GridError(f"{self._deaths} worker processes died at their start ({how}): {self._log} says why")
        self._process = self._start()
        return how
