"""A part of a local run in a process of its own (evaluator, parameter server): started, started again when it dies, ended with the run."""

import os
import subprocess
import sys
from typing import IO

from vcdl.client.threads import limit_threads
from vcdl.errors import GridError
from vcdl.run.folder import RunFolder

_DEATHS_ALLOWED = 5
"""In a row without a sign of work between them."""


class ChildProcess:
    """Keeps `python -m MODULE RUN_FOLDER` running; the module ends itself when its standard input closes."""

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
        """Start it again when it died; `worked`: there is a sign of its work since the last look. Raises GridError."""
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
        """End it at once."""
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
