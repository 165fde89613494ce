"""The child process of a run: start it, read its messages, interrupt it, and end it with the program."""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

from vcdl import errors
from vcdl.api.order import ChildOrder
from vcdl.errors import ExitCode, GridError, VcdlError, start_cure
from vcdl.files.children import start_child
from vcdl.journal.observer import RunningTask

_LAST_WAIT_S = 60.0
"""Longest wait at the program's end for its run to pause: as long as workers may take to write their checkpoints."""
_SHOWN_BYTES = 2000
"""Bytes at the end of the process's output that are read to find its last line, for the message about its death."""


class RunProcess:
    """Executes an order in a child process, so that nothing in this program can disturb the run.

    A thread reads the child's messages and updates the attributes. The child pauses its run when this program ends,
    even if it is killed, since that closes the child's standard input.
    """

    def __init__(self, order: ChildOrder) -> None:
        """Start the process and the thread that reads its messages.

        Raises:
            GridError: It cannot be started.
        """
        self._order = order
        # Use a file for its errors, because no thread reads them while the process lives, and a full pipe would block
        # it.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self.phase = "starting"
        self.waiting_for: str | None = None
        self.running: list[RunningTask] = []
        self.waiting = 0
        self.has_begun = False
        """Whether the job is accepted and prepared."""
        self._decided = threading.Event()
        self._error: VcdlError | None = None
        self._was_interrupted = False
        try:
            self._process = start_child(
                "vcdl.api.child",
                # The pipe stays open. When this program ends in any way, it closes, and the child pauses the run.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=_environment(),
                start_new_session=True,  # Ctrl-C reaches this program alone, which passes it on
            )
        except OSError as error:
            raise GridError(f"cannot start the process of the run: {error}; {start_cure(error)}") from error
        with contextlib.suppress(BrokenPipeError):  # it has died: `failure` says how
            self._stdin.write(order.to_line())
            self._stdin.flush()
        self._listener = threading.Thread(target=self._listen, name="vcdl-run", daemon=True)
        self._listener.start()
        atexit.register(self._end_with_program)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, or has sent messages that were not read yet."""
        # The process may have ended before the listener has read the error that it sent.
        return self._process.poll() is None or self._listener.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for the process to end, and return whether it has."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._listener.join()
        atexit.unregister(self._end_with_program)
        self._stdin.close()
        return True

    def wait_until_begun(self, timeout_s: float) -> bool:
        """Wait until the job is prepared or the process has ended.

        Returns:
            False if neither happens within `timeout_s` seconds.
        """
        # The pipe may close a moment before the process has ended, and only then is there an exit status to explain.
        return self._decided.wait(timeout_s) and (self.has_begun or self.wait(_LAST_WAIT_S))

    def interrupt(self) -> None:
        """Ask the process to pause the run, as Ctrl-C does; a second request ends it immediately."""
        self._was_interrupted = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    @property
    def failure(self) -> VcdlError | None:
        """The error that ended the process, or None if it still runs, was interrupted or ended normally."""
        if self.is_alive:
            return None
        status = self._process.returncode
        if self._error is not None or status in (ExitCode.OK, ExitCode.INTERRUPTED):
            return self._error
        # A second interrupt may arrive before Python's handler is set, and then the signal ends the process: no
        # failure.
        return None if self._was_interrupted and status == -signal.SIGINT else self._death(status)

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def _death(self, status: int) -> VcdlError:
        from vcdl.report.failure import how_it_died

        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _SHOWN_BYTES))
        lines = self._log.read().decode(errors="replace").splitlines()
        last = f"; its last line: {lines[-1].strip()}" if lines else ""
        return VcdlError(
            f"the process of the run died ({how_it_died(status)}){last}. Nothing that was applied is lost: "
            f"`vcdl.open({str(self._order.folder)!r}).resume()` continues"
        )

    def _listen(self) -> None:
        stdout: Any = self._process.stdout
        for line in stdout:
            # A child that is killed while it writes a long error leaves a part of a line.
            with contextlib.suppress(ValueError):
                self._hear(json.loads(line))
        # Also a child that died before its job was accepted must end the wait of `wait_until_begun`.
        self._decided.set()

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"phase": str(text)}:
                self.phase = text
            case {"waiting_for": why}:
                self.waiting_for = why
            case {"running": running, "waiting": int(waiting)}:
                self.running, self.waiting = [RunningTask(*task) for task in running], waiting
            case {"begun": True}:
                self.has_begun = True
                self._decided.set()
            case {"error": {"kind": kind, "message": text, "code": code}}:
                self._error = _error_of(kind, text, ExitCode(code))

    def _end_with_program(self) -> None:
        """Print a notice and pause the run, because a program that ends without `wait` has most likely forgotten it."""
        if self._process.poll() is not None:
            return
        print(
            f"vcdl: the program ends, so its run in {self._order.folder} pauses: call run.wait() before the end; "
            "`vcdl resume` continues",
            file=sys.stderr,
            flush=True,
        )
        self.interrupt()
        with contextlib.suppress(KeyboardInterrupt):
            self.wait(_LAST_WAIT_S)


def _error_of(kind: str, message: str, code: ExitCode) -> VcdlError:
    found = getattr(errors, kind, None) if kind else None
    error: VcdlError = found(message) if found is not None else VcdlError(message)
    error.exit_code = code
    return error


def _environment() -> dict[str, str]:
    """Return this program's environment variables, with the Keras backend that it has loaded."""
    environment = dict(os.environ)
    keras = sys.modules.get("keras")
    if keras is not None:
        # The child imports Keras anew, and a program may have chosen its backend in Python.
        environment["KERAS_BACKEND"] = keras.backend.backend()
    return environment
