"""A process of `vcdl_checker`: answer one check request after the other, until standard input is closed.

If this machine cannot do the check, the answer is LATER, and the script does the check itself.
"""

import logging
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.validate import LATER, Verdict, validate
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import ExitCode, VcdlError

_SENT_WITHIN_S = 5.0
"""Seconds in which a script must send its request, so that one that hangs does not occupy the process."""
_MOST_BYTES = 1 << 14
_LONGEST_S = 240
"""Seconds after which a check kills this process: less than the 300 s for which scripts wait, so that they notice. A
check takes milliseconds; the first one that needs a model, seconds."""
_MOST_WORDS = 2000
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger("vcdl.checker")


def serve(listener: socket.socket, runs: OpenedRuns, until: int) -> None:
    """Answer check requests until the parent closes its end of a pipe.

    Args:
        listener: The socket on which requests arrive.
        runs: The project's runs.
        until: File descriptor whose end of file ends the loop.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(until, selectors.EVENT_READ)
        while not any(key.fd == until for key, _ in selector.select()):
            try:
                connection, _ = listener.accept()
            except OSError:  # another process has accepted it, or the script has gone
                continue
            with connection:
                try:
                    _answer(connection, runs)
                except OSError as error:
                    _log.debug("a script did not wait for its answer: %s", error)


def _answer(connection: socket.socket, runs: OpenedRuns) -> None:
    """Answer one check request.

    Raises:
        OSError: The script has gone, or did not send its request in time.
    """
    # Ask the kernel who connects, so that security does not depend on the socket's mode alone.
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in (os.geteuid(), 0):
        return
    connection.settimeout(_SENT_WITHIN_S)
    # Send the dot at once: the script waits only 5 s for it, which shows that a process lives, but 300 s for the
    # verdict.
    connection.sendall(b".")
    what, *files = _line(connection).split(b"\0")
    verdict = Verdict(LATER, "the request is not one of vcdl_ask.py")
    if what == b"validate" and len(files) == 1:
        verdict = judge(runs, Path(os.fsdecode(files[0])))
    # NUL marks the end of the answer, and parts of the reason come from the upload.
    why = verdict.why.replace("\0", " ")[:_MOST_WORDS]
    connection.sendall(f"{verdict.code} {why}\0".encode(errors="replace"))


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(_MOST_BYTES)
        # Limit the length, because the script's input is a file name that a client has chosen.
        if not more or len(line) > _MOST_BYTES:
            raise ConnectionError("the request is too long or incomplete")
        line += more
    return line[:-1]


def judge(runs: OpenedRuns, file: Path) -> Verdict:
    """Check an upload, and return the verdict; LATER if this machine cannot check it.

    A check that takes longer than _LONGEST_S kills this process.
    """
    # SIGALRM's default action kills the process, also inside HDF5 or TensorFlow, where no Python code runs. The script
    # sees the end of the connection and checks for itself; the daemon starts another process.
    signal.alarm(_LONGEST_S)
    try:
        return validate(runs, file)
    # Do not refuse: BOINC takes a refusal as final, and the host would lose its credit for a fault of this machine.
    except (VcdlError, OSError, MemoryError) as error:
        return Verdict(LATER, f"{file.name} could not be checked: {error}")
    except Exception:
        _log.exception("%s: a bug in vcdl", file.name)
        return Verdict(LATER, "a bug in vcdl")
    finally:
        signal.alarm(0)


def main(arguments: Sequence[str]) -> ExitCode:
    """Serve check requests.

    Args:
        arguments: The file descriptor of the listening socket, and the project's folder.
    """
    number, folder = arguments
    for each in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; the daemon ends us
        signal.signal(each, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(message)s", level=logging.INFO)
    with socket.socket(fileno=int(number)) as listener, closing(OpenedRuns(BoincProject.at(Path(folder)))) as runs:
        serve(listener, runs, sys.stdin.fileno())
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
