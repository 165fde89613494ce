"""One process in a slot: an orphan of a client that was killed may still train there for some seconds."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.client.shortage import Shortage

LOCK_FILE = "boinc_lockfile"
PATIENCE_S = 35.0
"""Every task that follows BOINC's rules ends within 30 s of its client."""
_POLL_S = 0.2


@contextmanager
def locked(slot: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold BOINC's lock of a slot; ends with the process at the latest. Raises Shortage when another process keeps it."""
    descriptor = os.open(slot / LOCK_FILE, os.O_WRONLY | os.O_CREAT, 0o664)
    try:
        until_s = time.monotonic() + patience_s
        while not _taken(descriptor):
            if time.monotonic() > until_s:
                raise Shortage("another process still trains in this slot")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: go on without, as BOINC does.
        return error.errno in (errno.ENOSYS, errno.ENOLCK)
    return True
