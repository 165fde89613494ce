"""Who folds into a folder store, and who follows one block behind.

    entrance   held (flock) by who begins a fold, until it leads and the note says what it does
    lock       held by the leader to its end, and by readers; its follower takes it then and leads. Its bytes are the leader's note

All locks go with a process that is killed.
"""

import fcntl
import os
import struct
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_NOTE = struct.Struct("<4q")
_PASSED = struct.Struct("<q")
"""The last of its numbers."""
_POLL_S = 0.0002
"""A block takes about as long."""


@dataclass(frozen=True)
class Note:
    """What a leader is doing."""

    base_version: int
    """That it began with, the newest."""
    version: int
    """That it makes."""
    slot: int
    passed: int = 0
    """Weights that are new in its slot."""


class Lock:
    """A file that one process at a time has locked. What the disk says is an OSError."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def take(self) -> None:
        """Wait for it."""
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def try_to_take(self) -> bool:
        """Whether it could be had at once."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def let_go(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)


class Turn:
    """Of one fold: it leads, or follows the one that does. `entrance` is held already."""

    def __init__(self, entrance: Lock, lock: Lock) -> None:
        self._entrance = entrance
        self._lock = lock
        self._is_announced = False
        self.leads = lock.try_to_take()

    def note(self) -> Note:
        """The leader's, or the last one's when a reader holds the lock."""
        numbers = os.pread(self._lock.descriptor, _NOTE.size, 0)
        return Note(*_NOTE.unpack(numbers)) if len(numbers) == _NOTE.size else Note(-1, -1, 0)

    def announce(self, note: Note) -> None:
        """Of the leader: it may be followed."""
        os.pwrite(self._lock.descriptor, _NOTE.pack(*astuple(note)), 0)
        self._entrance.let_go()
        self._is_announced = True

    def passed(self, weights: int) -> None:
        """So many weights are new in its slot: a follower is told."""
        if self._is_announced:
            os.pwrite(self._lock.descriptor, _PASSED.pack(weights), _NOTE.size - _PASSED.size)

    def wait(self, weights: int) -> None:
        """Of a follower: until the leader has passed so many weights. When it is over, this one leads."""
        while not self.leads:
            self.leads = self._lock.try_to_take()
            if self.leads or self.note().passed >= weights:
                return
            time.sleep(_POLL_S)

    def lead(self) -> None:
        """Wait until the leader is over."""
        if not self.leads:
            self._lock.take()
            self.leads = True
