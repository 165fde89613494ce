"""A task under BOINC's wrapper (Windows, macOS): the wrapper suspends, counts and reports; a few files and SIGTERM are all there is.

The wrapper reads fraction_done.txt, and takes a new time on checkpoint.npz for a checkpoint. It ends a task with SIGTERM and kills it
ten seconds later; on Windows it kills at once, and what came after the last checkpoint is trained again.
"""

import contextlib
import os
import time
from pathlib import Path

from vcdl.client.host import Request
from vcdl.client.slot import finish_now_wanted

FRACTION_FILE = "fraction_done.txt"
"""`fraction_done_filename` of wrappers/*/job.xml."""
_LOOK_EVERY_S = 1.0


class WrapperHost:
    """BOINC's wrapper, the parent of this process."""

    def __init__(self, slot: Path, project: Path) -> None:
        self._slot = slot
        self._project = project
        self._quit = False
        self._finish_now = False
        self._is_training = False
        self._look_at_s = 0.0

    def quit(self) -> None:
        """Leave a checkpoint and end; before the training has begun, at once."""
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
        return Request.FINISH if self._finish_now else Request.GO

    def progress(self, fraction: float, _samples: int) -> None:
        with contextlib.suppress(
            OSError
        ):  # the wrapper has it open (Windows), or the disk is full: the next one will do
            (self._slot / FRACTION_FILE).write_text(f"{fraction:.6f}\n")

    def checkpoint_made(self) -> None:
        """The wrapper sees the new file."""
