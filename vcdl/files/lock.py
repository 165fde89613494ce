"""Lock files between the processes of one machine, exclusively or shared, with or without waiting."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

_POLL_S = 0.02
"""Seconds between two attempts to take a lock that is held: short compared with any work done under one."""
_PID_BYTES = 20
"""Bytes for a PID in decimal: enough for 64 bits."""


class FileLock:
    """A lock on a file, which the kernel releases when its holder ends. All methods raise OSError.

    It is advisory: only processes that take the same lock respect it.
    """

    def __init__(
        self, path: Path, *, existing: bool = False, names_holder: bool = False, is_record: bool = False
    ) -> None:
        """Open the lock file.

        Args:
            path: The file.
            existing: Whether the file must exist. Otherwise it is created if needed.
            names_holder: Whether `acquire` writes this process's PID into the file if it is exclusive, for `holder`.
            is_record: Whether to use a record lock (fcntl), as BOINC's programs do, instead of flock.

        Raises:
            OSError: It cannot be opened.
        """
        # O_CLOEXEC, because a child that inherited the descriptor would hold the lock after its parent's end.
        flags = os.O_RDONLY if existing else os.O_RDWR | os.O_CREAT
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o664)
        self._names_holder = names_holder
        self._lock = fcntl.lockf if is_record else fcntl.flock

    def acquire(self, *, shared: bool = False, wait_s: float | None = None) -> bool:
        """Take the lock.

        Args:
            shared: Whether other processes may hold it shared at the same time. Otherwise it is exclusive.
            wait_s: Seconds to wait at most while others hold it; None for no limit.

        Returns:
            Whether the lock was taken.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if wait_s is None:
            self._lock(self._descriptor, kind)
        elif not self._acquire(kind | fcntl.LOCK_NB, wait_s):
            return False
        if self._names_holder and not shared:
            os.pwrite(self._descriptor, f"{os.getpid():<{_PID_BYTES}}".encode(), 0)
        return True

    def _acquire(self, kind: int, wait_s: float) -> bool:
        """Try to take the lock until `wait_s` seconds have passed; return whether it was taken."""
        give_up_s = time.monotonic() + wait_s
        while True:
            try:
                self._lock(self._descriptor, kind)
            except (BlockingIOError, PermissionError):  # record locks raise either
                if time.monotonic() >= give_up_s:
                    return False
                time.sleep(_POLL_S)
            else:
                return True

    def release(self) -> None:
        """Release the lock, which can then be acquired again."""
        self._lock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> int:
        """Return the PID of the last exclusive holder if the file names it, otherwise 0."""
        pid = os.pread(self._descriptor, _PID_BYTES, 0).strip()
        return int(pid) if pid.isdigit() else 0

    def close(self) -> None:
        """Release the lock and close its file; do not use this object afterwards."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Wait for the lock on a file, creating the file if needed, and hold it within the block. Raises OSError."""
    with FileLock(path) as lock:
        lock.acquire(shared=shared)
        yield


def holder_of(path: Path) -> int | None:
    """Return the PID of the process that holds a lock file exclusively.

    Returns:
        Its PID, 0 if the file does not name it, or None if the lock is free.

    Raises:
        OSError: The file cannot be opened.
    """
    try:
        lock = FileLock(path, existing=True)
    except FileNotFoundError:
        return None
    with lock:
        # Try the lock shared, so that two processes that ask at the same time do not take each other for the holder.
        return None if lock.acquire(shared=True, wait_s=0) else lock.holder()
