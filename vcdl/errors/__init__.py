"""Every error that VCDL raises on purpose, and the exit code with which a command ends.

    VcdlError
     ├─ JobError           the job file is wrong
     ├─ PluginError        an installed package contains a part that cannot be used
     ├─ DataError          the data set is missing or damaged, or does not fit the job
     ├─ ModelError         the model cannot be built, or does not fit the data
     ├─ RunFolderError     the run's folder is busy, missing, read-only or full
     │   └─ RunFolderFull      * there is no room on its disk
     ├─ FileUnavailable    * a file is not there yet, or this machine cannot read it
     ├─ StoreError         the weight store has failed
     │   ├─ StoreUnavailable   * a service cannot be reached, or its disk is full
     │   └─ StoreLost          it has lost its data: restore a snapshot
     ├─ JournalError       the journal has failed
     │   └─ JournalUnavailable * it cannot be written now: its disk is full
     ├─ GridError          the grid cannot run subtasks
     │   └─ GridUnavailable    * its database cannot be reached
     ├─ FleetError         the cloud refuses, or the fleet itself has failed
     │   ├─ FleetUnavailable    * the cloud throttles, fails or cannot be reached
     │   └─ FleetNotAuthorised  credentials are missing, expired or lack a permission
     ├─ WorkunitError      workunit.json is not one of ours
     └─ WeightsFileError   params.h5 or update.h5 is not valid

     *  is Unavailable, too: the cause may pass, so wait and try again

A message says what happened and then what to do about it.
"""

import errno
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk, of a used-up quota, and of a file larger than the process may write."""


LOST_CURE = "restore it from a copy of the run, or start a new one: `vcdl run` its job.yaml with another --out"
"""What a user can do about a deleted file of a run, as a clause for the end of a message."""

_STARTED_BY = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close programs that have many files open",
    errno.EAGAIN: "raise the limit of processes (`ulimit -u`)",
}


_FILED_BY = {
    **dict.fromkeys(DISK_FULL, "free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "correct the permissions"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "remove what is in its place"),
    errno.EROFS: "mount its disk so that it can be written",
}


def start_cure(error: OSError) -> str:
    """Return what a user can do about an OSError at the start of a process, as a clause for the end of a message."""
    return _STARTED_BY.get(error.errno or 0, "free some memory")


def file_cure(error: OSError) -> str:
    """Return what a user can do about an OSError on a file, as a clause for a message: `free some space`."""
    return (_FILED_BY | _STARTED_BY).get(error.errno or 0, "repair its disk")


MASK = "***"
"""Text that replaces a password wherever others may read it: in messages, logs and pages."""

# A URL that was made a file name has one slash only. The match ends at the line's last @, because an unescaped password
# may contain any character.
_PASSWORD = re.compile(r"((?://|:/)[^\s:@]*:).*@")
_AUTHORITY_END = re.compile("[/?#]")


class ExitCode(IntEnum):
    """The exit codes of `vcdl`; docs/commands.md lists them."""

    OK = 0
    RUN_FAILED = 1
    """The run ended early: a shard kept failing, or every worker did."""
    USAGE = 2
    """Wrong arguments (click's own code)."""
    BAD_JOB = 3
    BAD_DATA = 4
    BAD_MODEL = 5
    BAD_FOLDER = 6
    """The run's folder is busy, missing, read-only or on a full disk; or this machine cannot read a file."""
    SERVICE = 7
    """The store, the journal or the grid has failed."""
    FLEET = 8
    """The cloud refuses, or a part of a fleet is left over."""
    MEMORY = 9
    """The memory of this machine, or the process's share of it, has run out."""
    BUG = 70
    """An unexpected exception: a bug in vcdl."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C, cleanly; `vcdl resume` continues."""


class VcdlError(Exception):
    """Base of all errors that carry a message for the user."""

    exit_code = ExitCode.RUN_FAILED


class Unavailable(VcdlError):
    """A resource cannot be reached, is full or is busy.

    The call had no effect and can be retried; long-running callers do so with backoff.
    """


class JobError(VcdlError):
    """The job file is wrong; the message starts with file, line and key."""

    exit_code = ExitCode.BAD_JOB


class PluginError(VcdlError):
    """An installed package contains a part that cannot be used: a rule, a store, a data source, a grid, a cloud."""

    exit_code = ExitCode.BAD_JOB


class DataError(VcdlError):
    """The data set is missing or damaged, or does not fit the job."""

    exit_code = ExitCode.BAD_DATA


class ModelError(VcdlError):
    """The model cannot be built, is not safe to load, or does not fit the data."""

    exit_code = ExitCode.BAD_MODEL


class RunFolderError(VcdlError):
    """The run's folder is busy, missing, read-only or full."""

    exit_code = ExitCode.BAD_FOLDER


class RunFolderFull(RunFolderError, Unavailable):
    """The disk with the run's folder, or the user's share of it, is full."""


class FileUnavailable(Unavailable):
    """A needed file is not there yet, or this machine cannot read it now."""

    exit_code = ExitCode.BAD_FOLDER


class StoreError(VcdlError):
    """The weight store has failed."""

    exit_code = ExitCode.SERVICE


class StoreUnavailable(StoreError, Unavailable):
    """A server cannot be reached, is starting or is full; or the disk of a folder's store is full."""


class StoreLost(StoreError):
    """The server answers, but without the weights or with older ones: it lost its data."""


class JournalError(VcdlError):
    """The journal has failed."""

    exit_code = ExitCode.SERVICE


class JournalUnavailable(JournalError, Unavailable):
    """The disk with the journal is full, or another process has held the journal for long."""


class GridError(VcdlError):
    """The grid cannot run subtasks."""

    exit_code = ExitCode.SERVICE


class GridUnavailable(GridError, Unavailable):
    """The grid's database cannot be reached, is starting, full or busy."""


class ServerError(VcdlError):
    """A step on the machine of a BOINC server has failed."""

    exit_code = ExitCode.SERVICE


class FleetError(VcdlError):
    """The cloud refuses what the fleet needs, or a part of the fleet is left over."""

    exit_code = ExitCode.FLEET


class FleetUnavailable(FleetError, Unavailable):
    """The cloud throttles, fails or cannot be reached."""


class FleetNotAuthorised(FleetError):
    """The cloud's credentials are missing, expired, or lack a permission: only a user can fix that."""


class WorkunitError(VcdlError):
    """A workunit.json is damaged or of another version."""


class WeightsFileError(VcdlError):
    """A weights file is damaged, of another version, or not for this model."""


def folder_error(path: Path, error: OSError) -> RunFolderError:
    """Return the RunFolderError with advice for an OSError in a run's folder; RunFolderFull if its disk is full."""
    # If the folder itself is missing, the path is most likely wrong, and the user has lost nothing.
    if error.errno == errno.ENOENT and not path.exists():
        return RunFolderError(f"there is no folder {path}: create it, or choose another")
    if error.errno == errno.ENOENT:
        return RunFolderError(f"{error.filename or path} is missing: {LOST_CURE}")
    if error.errno in DISK_FULL:
        return RunFolderFull(
            f"{path}: {error.strerror or error}; free some space (`vcdl resume` continues a run that has ended)"
        )
    return RunFolderError(
        f"{path}: {error.strerror or error}; {file_cure(error)}, or choose another folder (`vcdl resume` continues a "
        "run that has started)"
    )


@contextmanager
def folder_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block: raise the RunFolderError of `folder_error` in its place."""
    try:
        yield
    except OSError as error:
        raise folder_error(path, error) from error


_LONGEST_FAULT = 500
"""Characters kept of another library's message: enough for its first sentence, short enough for one terminal line."""


def first_fault(error: ValueError) -> str:
    """Return an error's message for a user; of a pydantic error only its first problem: `memory_gb: Input should be …`.

    The message may quote a file from a stranger, so it is made printable, put on one line and cut to a readable length.
    """
    # The import is here, because clients have no pydantic and every command imports this module.
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return printable(str(error))[:_LONGEST_FAULT]
    # Only the first problem is shown: the others usually follow from it, and the message should fit on a line.
    first = error.errors()[0]
    words = filter(None, (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")))
    return printable(": ".join(words))[:_LONGEST_FAULT]


def unreadable(path: Path, error: OSError) -> FileUnavailable:
    """Return the FileUnavailable for an OSError while reading a file that exists, so that callers try again later."""
    return FileUnavailable(
        f"{path} is there, but this machine cannot read it ({error.strerror or error}): {file_cure(error)}; or remove "
        "the file if it is lost"
    )


def data_file_error(path: Path, error: OSError, missing: str = "check the name and the folder") -> VcdlError:
    """Return the error for an OSError on a user's data file: DataError if missing or forbidden, else FileUnavailable.

    A file that exists but cannot be read now may be readable later, and FileUnavailable makes callers try again.

    Args:
        path: The file.
        error: The error.
        missing: What the user can do about a missing file.
    """
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist: {missing}")
    if isinstance(error, PermissionError):
        return DataError(f"{path} may not be read: check its permissions")
    return unreadable(path, error)


def weights_file_error(path: Path, error: OSError) -> WeightsFileError | FileUnavailable:
    """Return the error for an OSError on a weights file; it blames the sender only for what a sender can cause.

    Returns:
        WeightsFileError, which blames the sender, if the file is missing or a folder; otherwise FileUnavailable.
    """
    # The sender can cause a missing file and a folder in its place. Everything else is a fault of this machine, for
    # which no host may be blamed.
    if error.errno in (errno.ENOENT, errno.EISDIR):
        return WeightsFileError(f"{path.name} cannot be read ({error})")
    return unreadable(path, error)


def for_shell(path: object) -> str:
    """Return a path as text for a command line that is shown to a user, quoted where the shell would split it."""
    return shlex.quote(str(path))


def one_line(error: BaseException) -> str:
    """Return an error's message on one line of at most 300 characters, or its class name if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def printable(text: str) -> str:
    """Return text from strangers on one line, with a space for each character that is not printable."""
    # Such text may contain escape sequences, which would change what a terminal shows.
    return "".join(character if character.isprintable() else " " for character in text).strip()


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a wrong word: `did you mean x?`, or the list of the known words if none is similar."""
    # The import is here, because only wrong words need it and every command should start without a delay.
    import difflib

    known = sorted(known)
    close = difflib.get_close_matches(word[:100], known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(known)}" if known else "nothing is known here"


def without_passwords(text: str) -> str:
    """Return a text with MASK for the password of each URL in it (`//user:…@`)."""
    return _PASSWORD.sub(rf"\1{MASK}@", text)


def split_password(url: str) -> tuple[str, str]:
    """Separate the password from a URL, so that the URL can be shown and stored.

    Returns:
        The URL `SCHEME://[USER@]HOST…` without the password, and the password as it is encoded in the URL, or "".
    """
    scheme, separator, remainder = url.partition("://")
    authority = _AUTHORITY_END.split(remainder, maxsplit=1)[0]
    # The host starts after the last @, because a password that was not escaped may contain one.
    login, _, host = authority.rpartition("@")
    user, _, password = login.partition(":")
    if not password:
        return url, ""
    return f"{scheme}{separator}{f'{user}@' if user else ''}{host}{remainder[len(authority) :]}", password
