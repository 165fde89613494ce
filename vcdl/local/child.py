"""A child process of a local run, an evaluator or a parameter server, as the run and as the child itself see it.

The run restarts it when it dies, and ends it. The child ends with the run, however that ends: its standard input
closes then.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from vcdl.client.processors import limit_threads
from vcdl.errors import GridError
from vcdl.run.folder import RunFolder

_DEATHS_ALLOWED = 5
"""Deaths in a row, without a sign of work between them."""


class ChildProcess:
    """Keeps `python -m MODULE RUN_FOLDER` running; the module must call `end_with_parent`."""

    def __init__(self, module: str, folder: RunFolder) -> None:
        self._module = module
        self._folder = folder
        self._log: IO[bytes] = folder.workers_log.open("ab")
        self._deaths = 0
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, worked: bool) -> None:
        """Start the child again if it died; `worked`: it showed a sign of work since the last call.

        Raises GridError.
        """
        self._deaths = 0 if worked else self._deaths
        status = self._process.poll()
        if status is None:
            return
        self._deaths += 1
        if self._deaths > _DEATHS_ALLOWED:
            raise GridError(
                f"{self._module} died {self._deaths} times in a row, the last time with status {status}: "
                f"{self._folder.workers_log} says why"
            )
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process = self._start()

    def close(self) -> None:
        """End the child at once."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()  # type: ignore[union-attr]
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._folder.path)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **limit_threads(1)},
                start_new_session=True,
            )
        except OSError as error:
            raise GridError(f"cannot start the process {self._module}: {error}; free some memory") from error


def end_with_parent() -> None:
    """In a child: from now on, end this process at once when its standard input closes."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(
        sys.stdin.fileno(), 1
    ):  # not through its buffer: a thread that waits in there aborts a process that ends
        pass
    os._exit(0)


def log_lines(name: str) -> Callable[[str], None]:
    """In a child: a function that writes a line to workers.log, its name in front; a full disk costs the line only."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{name}: {text}", file=sys.stderr, flush=True)

    return say
