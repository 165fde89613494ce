"""`vcdl_checker`: keep processes ready that check uploads, so that no check waits for the start of a Python.

`vcdl_validate` connects to PROJECT/vcdl/checker.sock, which only the project's user may use. If it gets no answer, it
does the whole check itself. The daemon only runs the processes: as many as there are script_validators. It restarts
those that end, and checks nothing itself (docs/decisions/039).

    request     validate, NUL, a file's path; a line break
    reply       "." when a process has accepted the request; then the exit code, a space, the reason, NUL

A reply without its final NUL does not count. A process that works on one upload for too long kills itself.
"""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vcdl.boinc.daemons.daemon import run_daemon
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.errors import ExitCode, GridError
from vcdl.errors.backoff import Attempts, Backoff
from vcdl.files.children import start_child

_IDLE_S = 1.0
_WAITING = 64
"""Connections that may queue for a free process."""
_ENDS_WITHIN_S = 10.0
"""Seconds that a process has to finish its check before it is killed; an unanswered script then checks for itself."""
_LONGEST_REST_S = 60.0
"""Longest pause in seconds before processes that keep ending are restarted, so that they do not fill the log."""
_SCRIPT = "vcdl_validate"
_log = logging.getLogger("vcdl.checker")


@contextmanager
def socket_address(project: BoincProject) -> Iterator[str]:
    """Yield a path to the checker's socket that is short enough for a Unix socket address (108 bytes).

    The path is valid only within the block.

    Raises:
        OSError: The folder of the socket is missing.
    """
    path = project.checker_socket
    # bind() accepts only 108 bytes, and a project's folder may be deep. A path through /proc/self/fd is always short.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(project: BoincProject) -> socket.socket:
    """Connect to the project's resident checker, and return the socket, which the caller closes.

    Raises:
        OSError: No checker listens.
    """
    asking = socket.socket(socket.AF_UNIX)
    try:
        with socket_address(project) as address:
            asking.connect(address)
    except OSError:
        asking.close()
        raise
    return asking


class Checkers:
    """Owns the checker's socket, and runs the processes that answer at it.

    `close` lets each process finish the upload that it is checking, for at most _ENDS_WITHIN_S seconds.
    """

    def __init__(self, project: BoincProject) -> None:
        """Create the socket; the first `run_once` starts the processes.

        Raises:
            GridError: The socket cannot be created.
        """
        self._project = project
        self._path = project.checker_socket
        self._listener = self._listen()
        # Remember the inode: a newer daemon replaces the socket under the same name, and this one must not remove that.
        self._identity = os.stat(self._path).st_ino
        self._wanted = _validators(project)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._attempts = Attempts(Backoff(longest_s=_LONGEST_REST_S))
        _log.info("%d processes answer at %s", self._wanted, self._path.relative_to(project.path))

    def run_once(self) -> bool:
        """Start the processes that are missing, unless they ended so often that the back-off applies.

        It raises nothing: without the checker, `vcdl_validate` checks uploads itself.
        """
        ended = [process for process in self.processes if process.poll() is not None]
        for process in ended:
            self.processes.remove(process)
            _log.error("process %d ended (%d)", process.pid, process.returncode)
        # Count one failure per round, however many processes ended: several that end together must not multiply the
        # back-off.
        if ended:
            self._attempts.record_failure("a process of the checker ended")
        if self._attempts.is_due:
            # End the back-off only after a round in which all processes are alive: one may still die in its imports
            # after its start.
            if not ended and len(self.processes) == self._wanted:
                self._attempts.record_success()
            while len(self.processes) < self._wanted:
                self.processes.append(self._start())
        return False

    def close(self) -> None:
        """Stop the processes; each finishes the upload that it is checking."""
        with suppress(OSError):
            if os.stat(self._path).st_ino == self._identity:  # not that of a newer daemon
                self._path.unlink()
        self._listener.close()
        for process in self.processes:
            # Close its input, which asks a process to end after its upload. A signal would cut off the reply for which
            # a script waits.
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        # The socket is created by bind() with the umask's mode. A chmod afterwards would leave it open for a moment.
        others = os.umask(0o177)
        try:
            self._path.unlink(missing_ok=True)  # of a daemon that was killed
            with socket_address(self._project) as address:
                listener.bind(address)
            listener.listen(_WAITING)
        except OSError as error:
            listener.close()
            raise GridError(f"{self._path} cannot be created: {error.strerror}; run as the project's user") from error
        finally:
            os.umask(others)
        # A connection wakes all processes, and only one can accept it. The others must not block in accept(), where
        # they would not notice that their input is closed.
        listener.setblocking(False)
        return listener

    def _start(self) -> subprocess.Popen[bytes]:
        number = self._listener.fileno()
        module = "vcdl.boinc.daemons.checking_process"
        return start_child(module, str(number), self._project.path, stdin=subprocess.PIPE, pass_fds=(number,))


def _validators(project: BoincProject) -> int:
    """Return the number of this machine's script_validators, which may connect at the same time; at least 1.

    Raises:
        GridError: config.xml cannot be read.
    """
    daemons = ServerConfig.at(project.path).daemons_here
    return max(1, sum(_SCRIPT in daemon.command and not daemon.disabled for daemon in daemons))


def main() -> ExitCode:
    """Run the daemon until it is stopped."""
    return run_daemon("vcdl_checker", __doc__.partition("\n")[0], Checkers, _IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
