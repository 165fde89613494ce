"""Describe failures: an unexpected exception with its exit code, a bug with a report, a dead child process."""

import errno
import platform
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from vcdl.errors import DISK_FULL, ExitCode, VcdlError, file_cure, without_passwords

_FOLDER_ERRORS = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM}
"""Conditions of the machine, not bugs: a full or read-only disk, or missing permissions."""
_BACKENDS = ("tensorflow", "jax", "torch")
_PACKAGES = "keras tensorflow-cpu tensorflow jax torch numpy h5py pydantic click rich"


def describe_error(error: Exception) -> tuple[str, ExitCode]:
    """Return the message and the exit code of an error. For a bug, write a report to a file that the message names."""
    if isinstance(error, VcdlError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.errno in _FOLDER_ERRORS:
        where = error.filename or "the disk"
        words = f"{where}: {error.strerror}; {file_cure(error)}, or choose another folder"
        return words, ExitCode.BAD_FOLDER
    return _no_backend(error) or _find_damaged_byte_code(error) or _out_of_memory(error) or _bug(error)


def _no_backend(error: Exception) -> tuple[str, ExitCode] | None:
    """Return message and exit code if the error is a missing backend of Keras, else None."""
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing not in _BACKENDS:
        return None
    cure = "`pip install 'vcdl[cpu]'` installs TensorFlow; to use another backend that is installed, set KERAS_BACKEND"
    return f"Keras has no backend: {missing} is not installed; {cure}", ExitCode.BAD_MODEL


def _find_damaged_byte_code(error: Exception) -> tuple[str, ExitCode] | None:
    """Return message and exit code if the error is a truncated `.pyc` file, else None.

    A full disk truncates such a file, and Python then fails on every later import of its module.
    """
    if not isinstance(error, EOFError):
        return None
    # EOFError contains no file name. Only the import system's frame knows which file it was reading.
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "get_code")
    for frame in frames:
        if path := frame.f_locals.get("bytecode_path"):
            return f"{path} is truncated, probably because the disk was full: remove it", ExitCode.BAD_FOLDER
    return None


def _out_of_memory(error: Exception) -> tuple[str, ExitCode] | None:
    """Return message and exit code if the cause of an error is that memory has run out, else None."""
    from vcdl.client.memory import available_memory_bytes
    from vcdl.client.resources import is_out_of_memory
    from vcdl.report.wording import size

    if not is_out_of_memory(error):
        return None
    free_bytes = available_memory_bytes()
    free = "" if free_bytes is None else f" ({size(free_bytes)} of this machine are free)"
    return (
        f"memory has run out{free}: free some, raise this process's limit, or lower grid > workers or training > "
        "batch_size. `vcdl resume` continues a run that had started",
        ExitCode.MEMORY,
    )


def _bug(error: Exception) -> tuple[str, ExitCode]:
    """Write a bug report, and return the message that names it, and the exit code."""
    # Keep one line and not the whole text: a library may put megabytes of tensors into its message.
    what = f"{type(error).__name__}: {' '.join(without_passwords(str(error)).split())[:300]}"
    return f"{what}: this is a bug in vcdl; please report it with {write_bug_report(error)}", ExitCode.BUG


def write_bug_report(error: BaseException) -> str:
    """Write traceback and versions, without passwords, to a new file in the temporary folder.

    Returns:
        The file's path, or a text that explains why there is none.
    """
    text = "\n".join(
        [
            "arguments: " + " ".join(map(without_passwords, sys.argv[1:])),
            f"python {platform.python_version()} on {platform.platform()}",
            *versions(),
            "",
            *map(without_passwords, traceback.format_exception(error)),
        ]
    )
    try:
        # The name cannot be guessed: all users can write to the folder, and could place a link under a known name.
        with tempfile.NamedTemporaryFile(
            "w", prefix="vcdl-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
    except OSError as unwritable:
        return f"the command you gave (no report could be written: {unwritable.strerror})"
    return str(Path(file.name))


def versions() -> list[str]:
    """Return a line `package version` for VCDL and each installed package on which bugs usually depend."""
    import importlib.metadata

    found = []
    for package in ("vcdl", *_PACKAGES.split()):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def how_it_died(status: int, peak_bytes: int | None = None) -> str:
    """Return a text for the exit status of a child process, with the free memory if that may be the cause.

    Args:
        status: The status, negative for a signal.
        peak_bytes: The most memory that it used, or None if unknown.
    """
    from vcdl.client.memory import available_memory_bytes
    from vcdl.report.wording import size

    had = f" it had {size(peak_bytes)}," if peak_bytes else ""
    available_bytes = available_memory_bytes()
    left = f"{had} {size(available_bytes)} are free now" if available_bytes is not None else had.rstrip(",")
    if status == ExitCode.MEMORY:
        return f"out of memory:{left}".rstrip(":")
    # Only the kernel's OOM killer, or a person, sends this signal. The free memory shows which is more likely.
    if status == -signal.SIGKILL:
        return f"killed by signal 9, as Linux does when memory runs out:{left}".rstrip(":")
    if status == -signal.SIGABRT:
        return f"aborted by signal 6, as libraries do when memory runs out:{left}".rstrip(":")
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def peak_bytes_of(pid: int) -> int | None:
    """Return the most bytes of memory that a running process has used, or None if the system does not report it."""
    from vcdl.client.memory import number_in

    peak_kib = number_in(Path(f"/proc/{pid}/status"), "VmHWM:")
    return None if peak_kib is None else 1024 * peak_kib
