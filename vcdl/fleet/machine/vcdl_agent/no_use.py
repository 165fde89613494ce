"""How long the machine has been of no use, which is for how long it has cost for nothing."""

from __future__ import annotations

import time
from pathlib import Path

_SAVE_EVERY_S = 30.0


class NoUse:
    """How long the machine has been of no use, in seconds that it ran: kept over restarts of the agent and of the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_s = time.monotonic()
        try:
            self.seconds = float(max(0, int(path.read_text())))
        except (OSError, ValueError):
            self.seconds = 0.0
        self._saved_s = self.seconds

    def count(self, is_of_use: bool) -> None:
        """Whether it was of use since the last call. Raises OSError."""
        now_s = time.monotonic()
        self.seconds, self._looked_s = 0.0 if is_of_use else self.seconds + now_s - self._looked_s, now_s
        if self.seconds < self._saved_s or self.seconds >= self._saved_s + _SAVE_EVERY_S:
            growing = self._path.with_suffix(".new")
            growing.write_text(f"{self.seconds:.0f}\n")
            growing.replace(self._path)
            self._saved_s = self.seconds
