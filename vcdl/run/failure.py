"""An exception that nobody expected, in words and with an exit code: a state of the machine, or a bug."""

import errno
import traceback

from vcdl.errors import DISK_FULL, ExitCode, VcdlError, file_cure, without_passwords

_FOLDER_ERRORS = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM}
"""States of the machine, not bugs: a full or read-only disk, missing rights."""


def describe_error(error: Exception) -> tuple[str, ExitCode]:
    """The message and the exit code; for a bug, a report is written that the message names."""
    if isinstance(error, VcdlError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.errno in _FOLDER_ERRORS:
        where = error.filename or "the disk"
        words = f"{where}: {error.strerror}; {file_cure(error)}, or choose another folder"
        return words, ExitCode.BAD_FOLDER
    return _damaged_byte_code(error) or _out_of_memory(error) or _bug(error)


def _damaged_byte_code(error: Exception) -> tuple[str, ExitCode] | None:
    """Name byte-code that a full disk cut short: Python never imports its module again."""
    if not isinstance(error, EOFError):
        return None
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "get_code")
    for frame in frames:
        if path := frame.f_locals.get("bytecode_path"):
            return f"{path} is cut short, as Python leaves it on a full disk: remove it", ExitCode.BAD_FOLDER
    return None


def _out_of_memory(error: Exception) -> tuple[str, ExitCode] | None:
    """Say that memory has run out, if that is what an error is about."""
    from vcdl.client.memory import available_memory_bytes
    from vcdl.client.resources import is_out_of_memory
    from vcdl.report.wording import size

    if not is_out_of_memory(error):
        return None
    free_bytes = available_memory_bytes()
    free = "" if free_bytes is None else f" ({size(free_bytes)} of this machine are free)"
    return (
        f"memory has run out{free}: free some, raise this process's limit, or lower grid > workers or training > "
        "batch_size. `vcdl resume` goes on with a run that had begun",
        ExitCode.MEMORY,
    )


def _bug(error: Exception) -> tuple[str, ExitCode]:
    from vcdl.run.bug_report import write_bug_report

    what = f"{type(error).__name__}: {' '.join(without_passwords(str(error)).split())[:300]}"
    return f"{what}: this is a bug in vcdl; please report it with {write_bug_report(error)}", ExitCode.BUG
