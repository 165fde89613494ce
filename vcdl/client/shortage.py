"""What a machine lacks now and may have later: a task then waits instead of failing."""

import errno
from collections.abc import Iterator
from pathlib import Path

from vcdl.client.describe import describe
from vcdl.errors import VcdlError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LEAST_OF_BOUND = 0.5
"""The server's bound is generous; a process that trains was seen to take 0.6 of it at the least."""
_MIB = 1 << 20


class Shortage(VcdlError):
    """The machine lacks something that it may have later."""


def shortage_of(error: BaseException) -> str | None:
    """What was lacking, in one line, when that is at the root of `error`; None for any other error."""
    for cause in _causes(error):
        if isinstance(cause, Shortage):
            return str(cause)
        if _is_disk_full(cause):
            return "the disk is full"
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return "out of memory"
        if isinstance(cause, Exception) and describe(cause) == describe(MemoryError()):
            return "out of memory"
    return None


def is_disk_full(error: BaseException) -> bool:
    """Whether a full disk is at the root of `error`."""
    return any(_is_disk_full(cause) for cause in _causes(error))


def check_memory(bound_bytes: float, available_bytes: int | None) -> None:
    """Raise Shortage when so little memory is free (None: unknown) that a task with this bound cannot run."""
    needed_bytes = bound_bytes * _LEAST_OF_BOUND
    if available_bytes is not None and available_bytes < needed_bytes:
        raise Shortage(
            f"only {available_bytes // _MIB} MiB of memory are free, training needs {needed_bytes / _MIB:.0f} MiB"
        )


def available_memory_bytes() -> int | None:
    """Memory that a new process can have without swapping; None where the system does not say (only Linux does)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
