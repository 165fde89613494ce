"""`vcdl fleet run --daemon`: the loop in a process of its own, which outlives the terminal."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vcdl.errors import FleetError, RunFolderError
from vcdl.fleet.folder import FleetFolder

_START_S = 60.0
_POLL_S = 0.1


def start_daemon(file: Path, overrides: Sequence[str], folder: FleetFolder) -> int:
    """Start `vcdl fleet run FILE` and return its process id once it keeps the fleet.

    Raises FleetError when it ends at once, or another process keeps the fleet already, and RunFolderError.
    """
    folder.create()
    with folder.running():  # raises when another one does
        pass
    command = [sys.executable, "-m", "vcdl", "fleet", "run", str(file.resolve())]
    for setting in overrides:
        command += ["--set", setting]
    try:
        with folder.log_file.open("ab") as log:
            began_bytes = log.tell()
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=Path.cwd()
            )
    except OSError as error:
        raise RunFolderError(
            f"{folder.log_file}: {error.strerror or error}; mend it, or run without --daemon"
        ) from error
    give_up_s = time.monotonic() + _START_S
    while folder.running_pid() != child.pid:
        if child.poll() is not None or time.monotonic() > give_up_s:
            said = folder.log_file.read_bytes()[began_bytes:].decode(errors="replace").strip().splitlines()
            raise FleetError(f"the loop did not start: {said[-1] if said else 'it said nothing'} ({folder.log_file})")
        time.sleep(_POLL_S)
    return child.pid
