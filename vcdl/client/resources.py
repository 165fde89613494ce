"""Detect shortages of memory or disk, for which a task is postponed, and describe errors in one line."""

import errno
from collections.abc import Iterator

from vcdl.errors import DISK_FULL, VcdlError

_LEAST_OF_BOUND = 0.5
"""Fraction of the server's memory limit that must be free. The limit is generous: trainings used 0.6 of it or more, so
half is surely too little."""
_MIB = 1 << 20
_OUT_OF_MEMORY = frozenset({"MemoryError", "_ArrayMemoryError", "ResourceExhaustedError", "OutOfMemoryError"})
"""Error classes by name, of Python, NumPy, TensorFlow and PyTorch, because no backend is imported here (JAX:
RESOURCE_EXHAUSTED)."""
_WORDS_OF_ALL = ("RESOURCE_EXHAUSTED", "std::bad_alloc")
_WORDS_FOR_IT = {
    "ImportError": ("failed to map segment", "annot allocate memory"),
    "OSError": ("failed to map segment", "annot allocate memory"),
    "RuntimeError": (*_WORDS_OF_ALL, "can't start new thread"),
}
"""Error class → texts that mean out of memory, for example from libraries that were not loaded and threads that did not
start."""
_MOST_ERROR_CHARACTERS = 500
"""Longest text of a library's error, so that a report stays one line."""


class Shortage(VcdlError):
    """Raised when the machine lacks memory, disk or the slot's lock, which it may have later: the task is postponed."""


def shortage_of(error: BaseException) -> str | None:
    """Return which shortage caused an error, in one line, or None if none did."""
    for cause in _causes(error):
        if isinstance(cause, Shortage):
            return str(cause)
        if _is_disk_full(cause):
            return "the disk is full"
        if _is_out_of_memory(cause):
            return "out of memory"
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a lack of memory is at the root of `error`: Python's, a library's or the system's."""
    return any(map(_is_out_of_memory, _causes(error)))


def _is_out_of_memory(error: BaseException) -> bool:
    if type(error).__name__ in _OUT_OF_MEMORY or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return any(words in str(error) for words in _WORDS_FOR_IT.get(type(error).__name__, _WORDS_OF_ALL))


def error_text(error: Exception) -> str:
    """Describe an error in one line, with advice if possible. A library's long message is cut."""
    text = " ".join(str(error).split())[:_MOST_ERROR_CHARACTERS]
    if _is_out_of_memory(error):
        return "out of memory: lower training.batch_size, or run fewer workers at a time"
    return text if isinstance(error, VcdlError) else f"{type(error).__name__}: {text}"


def is_disk_full(error: BaseException) -> bool:
    """Return whether a full disk is at the root of `error`."""
    return any(_is_disk_full(cause) for cause in _causes(error))


def check_memory(bound_bytes: float, available_bytes: int | None) -> None:
    """Check that enough memory is free for a task.

    Args:
        bound_bytes: The server's limit on the task's memory.
        available_bytes: The free memory, or None if unknown.

    Raises:
        Shortage: Too little is free.
    """
    needed_bytes = bound_bytes * _LEAST_OF_BOUND
    if available_bytes is not None and available_bytes < needed_bytes:
        raise Shortage(
            f"only {available_bytes // _MIB} MiB of memory are free, but training needs {needed_bytes / _MIB:.0f} MiB"
        )


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_FULL


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then the errors that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
