"""The supervisor in a container, where BOINC's docker_wrapper pauses the task, and kills it to abort it.

A system that shuts down sends SIGTERM. Later the wrapper starts the same container again, with the same slot.

If containers cannot be paused (Podman without root under cgroups v1), or if wrapper and client are killed, the
container would continue to train, against the volunteer's settings. So the process leaves a checkpoint and ends once
the slot's lock is free, which the wrapper holds while it lives. If virtual machines hide the lock, its state is
ignored.
"""

import contextlib
import os
import time
from pathlib import Path

from vcdl.client.init_data import InitData
from vcdl.client.slot import LOCK_FILE, finish_now_wanted
from vcdl.client.supervisor import Request
from vcdl.client.time_share import TimeShare
from vcdl.files.lock import FileLock

FRACTION_FILE = "fraction_done"
"""The file that docker_wrapper reads every ten seconds."""
_LOOK_EVERY_S = 1.0
"""Seconds between two reads of the wrapper's files, which is often enough, since BOINC's client itself reads each
second."""


class WrapperSupervisor:
    """BOINC's docker_wrapper as a supervisor: it pauses and kills the container of this process from outside."""

    def __init__(self, slot: Path, init: InitData) -> None:
        self._slot = slot
        self._project = init.project
        self._time = TimeShare(init.elapsed_s)
        self._quit = False
        self._finish_now = False
        self._is_training = False
        self._look_at_s = 0.0
        # At the start the wrapper certainly holds the lock. If it cannot be seen now, its absence later proves nothing.
        self._sees_wrapper = _is_locked(slot)

    def quit(self) -> None:
        """Request a checkpoint and the end of the training; before it has started, end the process at once."""
        # Exit at once, because this runs in a signal handler: no checkpoint is needed yet, and an import cannot be
        # stopped.
        if not self._is_training:
            os._exit(0)
        self._quit = True

    def request(self) -> Request:
        self._is_training = True
        if self._quit:
            return Request.QUIT
        if time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + _LOOK_EVERY_S
            self._finish_now = finish_now_wanted(self._slot, self._project)
            if self._sees_wrapper and not _is_locked(self._slot):
                self._quit = True
                return Request.QUIT
        return Request.FINISH if self._finish_now else Request.GO

    def progress(self, fraction: float, _samples: int) -> None:
        self._time.record_progress(fraction)
        if self._time.share is None:
            return
        # If the disk is full, the next message replaces this one.
        with contextlib.suppress(OSError):
            (self._slot / FRACTION_FILE).write_text(f"{self._time.share:.6f}\n")

    def checkpoint_made(self) -> None:
        """Do nothing: the wrapper sees the new file."""


def _is_locked(slot: Path) -> bool:
    """Return whether another process holds the slot's lock, or False if that cannot be determined."""
    try:
        with FileLock(slot / LOCK_FILE, is_record=True) as lock:
            return not lock.acquire(wait_s=0.0)
    except OSError:
        return False
