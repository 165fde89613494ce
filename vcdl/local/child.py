"""Run the child processes of a local run, which are an evaluator and parameter servers, and restart those that die.

A child ends when its parent does.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from vcdl.client.processors import limit_threads
from vcdl.client.resources import is_out_of_memory
from vcdl.errors import ExitCode, GridError, VcdlError, start_cure
from vcdl.errors.backoff import Attempts, Backoff
from vcdl.files.children import when_parent_ends
from vcdl.local.warm_workers import Child, start_module
from vcdl.report.failure import how_it_died, peak_bytes_of
from vcdl.run.folder import RunFolder

_DEATHS_ALLOWED = 5
"""Deaths in a row, without work in between, before a child is given up: enough to survive a short lack of memory."""
_AT_ONCE = 3
"""Deaths in a row after which a child is still restarted immediately, because three may be chance. More of them have a
cause, so later restarts wait."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
"""Seconds from a further death to the next start: each start imports Keras, which occupies a core for seconds."""
Log = Callable[[str], None]
"""A function that writes a line to the log."""


class ChildProcess:
    """Keeps `python -m MODULE RUN_FOLDER` running; the module must call `child_main`.

    The child starts at once, and its output goes to workers.log. `watch`, called regularly, restarts a child that has
    died: immediately after the first three deaths in a row, later after growing waits. After more than
    `_DEATHS_ALLOWED` deaths in a row `is_hopeless` becomes true, and the caller decides whether that ends the run.
    """

    def __init__(self, module: str, folder: RunFolder) -> None:
        self._module = module
        self._folder = folder
        self.deaths = 0
        """Number of deaths in a row without work between them."""
        self.death = ""
        """The cause of its last death, as text."""
        self._starts = Attempts(Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S))
        self._peak_bytes: int | None = None
        self._is_dead = False
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, worked: bool) -> bool:
        """Restart the child if it is dead and a start is due, and return whether it has died since the last call.

        A start that fails counts as a death.

        Args:
            worked: Whether it has done work since the last call, which ends the series of deaths.
        """
        if worked:
            self.try_anew()
        died = not self._is_dead and self._has_died()
        if self._is_dead and self._starts.is_due:
            try:
                self._process, self._is_dead = self._start(), False
            except GridError as error:
                self._note_death(str(error))
        return died

    def try_anew(self) -> None:
        """Set the number of deaths in a row to 0, so that the next `watch` restarts a dead child without a wait."""
        self.deaths = 0
        self._starts.record_success()

    @property
    def is_hopeless(self) -> bool:
        """Whether it died more often in a row than a child may; `watch` would still restart it."""
        return self.deaths > _DEATHS_ALLOWED

    def hopeless(self) -> GridError:
        """Return the error for the user about a child that died too often, with its last cause of death."""
        return GridError(
            f"{self._module} died {self.deaths} times in a row, the last time: {self.death}; "
            f"{self._folder.workers_log} says why. Fix the cause, then `vcdl resume` continues"
        )

    def close(self) -> None:
        """Kill the child, wait for its end, and close the pipe to it."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()  # type: ignore[union-attr]

    def _has_died(self) -> bool:
        status = self._process.poll()
        if status is None:
            # The peak of memory explains a kill for lack of memory. It is read while the child lives, because /proc has
            # none of a dead process.
            self._peak_bytes = peak_bytes_of(self.pid) or self._peak_bytes
            return False
        self._process.stdin.close()  # type: ignore[union-attr]
        is_told = status > ExitCode.RUN_FAILED and status != ExitCode.MEMORY  # Python itself ends with 1 after a bug
        reason = self._reason() if is_told else ""
        self._note_death(reason or how_it_died(status, self._peak_bytes))
        return True

    def _reason(self) -> str:
        """Return the child's last line in workers.log since its start, without its name; "": it wrote none."""
        name = self._module.rpartition(".")[2]
        with contextlib.suppress(OSError), self._folder.workers_log.open(errors="replace") as log:
            log.seek(self._log_begin)
            lines = (line.strip().partition(": ") for line in log)
            return next((said for who, _, said in reversed(list(lines)) if who.endswith(name)), "")
        return ""

    def _note_death(self, words: str) -> None:
        self.deaths, self.death, self._is_dead = self.deaths + 1, words, True
        if self.deaths > _AT_ONCE:
            self._starts.record_failure(words)

    def _start(self) -> Child:
        environment, log = {**os.environ, **limit_threads(1)}, self._folder.workers_log
        self._log_begin = log.stat().st_size if log.exists() else 0
        try:
            return start_module(self._module, str(self._folder.path), environment=environment, log=log)
        except OSError as error:
            raise GridError(f"cannot start the process {self._module}: {error}; {start_cure(error)}") from error


def child_main(name: str, act: Callable[[RunFolder, Log], object]) -> int:
    """Run `act` in the child `python -m MODULE RUN_FOLDER` and return the exit code; the process exits with its parent.

    Args:
        name: The name in front of the lines that `act` logs.
        act: The work of the child, called with the run's folder and the log; it may raise VcdlError.
    """
    when_parent_ends(lambda: os._exit(0))
    log = _log_lines(name)
    return run_child(lambda: act(RunFolder.existing(Path(sys.argv[1])), log), log)


def run_child(act: Callable[[], object], log: Log) -> int:
    """Call `act` and return the exit code of the process: 0, that of its VcdlError, or that of a lack of memory.

    Such an error is logged as one line. Others are raised, as they are bugs.

    Args:
        act: The work of the child.
        log: Writes a line to the log.
    """
    try:
        act()
    except VcdlError as error:
        log(str(error))
        return int(error.exit_code)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        log(f"out of memory ({type(error).__name__})")
        return int(ExitCode.MEMORY)
    return 0


def _log_lines(name: str) -> Log:
    """Return a child's function that writes a line to workers.log after its name; a full disk only loses the line."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{name}: {text}", file=sys.stderr, flush=True)

    return say
