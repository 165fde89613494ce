"""Start and command a worker of the local grid, a process that reads JSON lines from a pipe (vcdl/client/worker.py)."""

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcdl.client.processors import limit_threads
from vcdl.local.warm_workers import Child, start_module


@dataclass
class WorkerProcess:
    """A worker process, and the workunit that it trains.

    `workunit` is None while it trains none. The grid sets the fields by the worker's messages.
    """

    name: str
    process: Child
    ready: bool = False
    workunit: str | None = None
    fraction: float = 0.0
    since_s: float = 0.0
    """The monotonic time at which it started the workunit."""
    _pending: bytes = b""

    @classmethod
    def start(cls, name: str, module: str, threads: int, log: Path) -> "WorkerProcess":
        """Start a worker, `python -m MODULE`, which sends `ready` once Keras is imported.

        Args:
            name: Its name in the journal.
            module: The module.
            threads: The number of its threads.
            log: The file for its errors.

        Raises:
            OSError: The process cannot be started.
        """
        environment = {**os.environ, **limit_threads(threads)}
        process = start_module(module, environment=environment, log=log, answers=True)
        # The output is read without blocking, as one thread serves all workers and must never wait for one of them.
        os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
        return cls(name, process)

    def fileno(self) -> int:
        """Return the descriptor of the worker's output, for a selector."""
        return self.process.stdout.fileno()  # type: ignore[union-attr]

    def send(self, **command: Any) -> None:
        """Send a command as a JSON line.

        If the worker has just died, the command is lost, and `receive` reports the death.
        """
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def allow_code(self) -> None:
        """Permit the worker to run the Python code that the job contains."""
        self.send(do="allow_code")

    def train(self, workunit: str, folder: Path, samples: int | None = None) -> None:
        """Let the worker train a workunit, and note it with the start time in the fields.

        Args:
            workunit: Its name.
            folder: Folder with its files.
            samples: Number of samples to train; None: as many as the workunit says.
        """
        self.workunit, self.fraction, self.since_s = workunit, 0.0, time.monotonic()
        self.send(do="train", folder=str(folder), **({} if samples is None else {"samples": samples}))

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that the worker sent since the last call, and whether it is dead (has closed its output).

        It never waits. An incomplete line is kept until the remainder arrives.
        """
        try:
            data = os.read(self.fileno(), 1 << 16)
        except BlockingIOError:
            return [], False
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [json.loads(line) for line in lines if line], not data

    def kill(self) -> int:
        """Kill the process, and return its exit status, negative for a signal."""
        with contextlib.suppress(OSError):
            self.process.kill()
        status = self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # it died before it read a command
            self.process.stdin.close()  # type: ignore[union-attr]
        self.process.stdout.close()  # type: ignore[union-attr]
        return status
