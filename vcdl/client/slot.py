"""A task's slot: BOINC's lock, and the small files by which task and client signal the task's end."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.client.resources import Shortage
from vcdl.errors import VcdlError

CHECKPOINT_FILE = "checkpoint.npz"
"""The checkpoint of an interrupted training (vcdl.client.checkpoint)."""
LOCK_FILE = "boinc_lockfile"
LOCK_WAIT_S = 35.0
"""Seconds to wait for another task's lock, because a task that follows BOINC's rules ends within 30 s of its client."""

EXIT_ABORTED = 194
"""BOINC's exit code EXIT_ABORTED_BY_CLIENT."""
EXIT_INIT_FAILURE = 206
"""BOINC's own exit code for a task that could not start."""

_FINISHED = "boinc_finish_called"
_POSTPONED = "boinc_temporary_exit"
_FINISH_NOW = "vcdl_finish_now"


class SlotError(VcdlError):
    """Raised for a missing or invalid file that the BOINC client puts into a slot."""


def clear_endings(slot: Path) -> None:
    """Delete end-of-task markers of a previous process: BOINC kills a task that keeps running once one exists."""
    for name in (_FINISHED, _POSTPONED):
        (slot / name).unlink(missing_ok=True)


def tell_finished(slot: Path) -> None:
    """Signal the client that the task is done; the process must then exit with 0.

    Raises:
        OSError: The file cannot be written.
    """
    (slot / _FINISHED).write_text("0\n")


def tell_postponed(slot: Path, delay_s: int, reason: str) -> None:
    """Request that the client restarts the task after `delay_s`; the process must then exit with 0.

    Raises:
        OSError: The file cannot be written.
    """
    (slot / _POSTPONED).write_text(f"{delay_s}\n{reason}\n", encoding="utf-8")


def finish_now_wanted(slot: Path, project: Path) -> bool:
    """Return whether the operator announced the machine's end, by a file in the slot or in the project's folder."""
    return (slot / _FINISH_NOW).exists() or (project / _FINISH_NOW).exists()


@contextmanager
def locked_slot(slot: Path, wait_s: float) -> Iterator[None]:
    """Hold BOINC's lock of a slot within the block, so that no process of a killed client trains in it as well.

    File systems without locks are used without one.

    Raises:
        Shortage: Another process kept it for `wait_s`.
        OSError: It cannot be locked.
    """
    from vcdl.files.lock import FileLock  # needs fcntl: POSIX only

    # Use a record lock, as BOINC's own programs do: flock would not see their locks.
    with FileLock(slot / LOCK_FILE, is_record=True) as lock:
        try:
            if not lock.acquire(wait_s=wait_s):
                raise Shortage("another process still trains in this slot")
        except OSError as error:
            if error.errno not in (
                errno.ENOSYS,
                errno.ENOLCK,
            ):  # a file system without locks: continue without one, as BOINC does
                raise
        yield
