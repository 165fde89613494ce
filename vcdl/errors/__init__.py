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
"""The advice for a file of a run that was deleted."""

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
    """Return the advice for a process that cannot be started."""
    return _STARTED_BY.get(error.errno or 0, "free some memory")


def file_cure(error: OSError) -> str:
    """Return the advice for a file that cannot be read or written."""
    return (_FILED_BY | _STARTED_BY).get(error.errno or 0, "repair its disk")


MASK = "***"
"""Text that replaces a password wherever others may read it: in messages, logs and pages."""

# A file name made from a URL has one slash. The match ends at the line's last @: an unescaped password may hold any
# character.
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
    """Convert an OSError in the run's folder to a RunFolderError with advice."""
    # If the folder itself is missing and not a file in it, the path is wrong and nothing was lost.
    if error.errno == errno.ENOENT and not path.exists():
        return RunFolderError(f"there is no folder {path}: create it, or choose another")
    if error.errno == errno.ENOENT:
        return RunFolderError(f"{error.filename or path} is missing: {LOST_CURE}")
    if error.errno in DISK_FULL:
        return RunFolderFull(
            f"{path}: {error.strerror or error}; free some space (`vcdl resume` continues a run that has ended)"
        )
    return RunFolderError(
        f"{path}: {error.strerror or error}; {file_cure(error)} (or choose another folder with --out), then continue "
        "with `vcdl resume`"
    )


@contextmanager
def folder_errors(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as a RunFolderError with advice (`folder_error`)."""
    try:
        yield
    except OSError as error:
        raise folder_error(path, error) from error


_LONGEST_FAULT = 500
"""Characters kept of another library's message: enough for its first sentence, short enough for one terminal line."""


def first_fault(error: ValueError) -> str:
    """Return the message of an error; of one of pydantic's, its first problem: `memory_gb: Input should be …`.

    The message may quote a file from a stranger, so it is made printable, put on one line and cut to a readable length.
    """
    # Imported here: clients have no pydantic, and every command imports this module.
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return printable(str(error))[:_LONGEST_FAULT]
    # The first alone: the others usually follow from it, and a message is one line.
    first = error.errors()[0]
    words = filter(None, (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")))
    return printable(": ".join(words))[:_LONGEST_FAULT]


def unreadable(path: Path, error: OSError) -> FileUnavailable:
    """Convert an OSError while reading an existing file to FileUnavailable."""
    return FileUnavailable(
        f"{path} is there, but this machine cannot read it ({error.strerror or error}): {file_cure(error)}; or remove "
        "the file if it is lost"
    )


def data_file_error(path: Path, error: OSError, missing: str = "check the name and the folder") -> VcdlError:
    """Convert an OSError on a submitter's data file: DataError if missing or forbidden, else FileUnavailable."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist: {missing}")
    if isinstance(error, PermissionError):
        return DataError(f"{path} may not be read: check its permissions")
    return unreadable(path, error)


def weights_file_error(path: Path, error: OSError) -> WeightsFileError | FileUnavailable:
    """Convert an OSError on a weights file.

    Returns:
        WeightsFileError, which blames the sender, if the file is missing or a folder; otherwise FileUnavailable.
    """
    # A sender can cause these two. Everything else is a fault of this machine, for which no host may be blamed.
    if error.errno in (errno.ENOENT, errno.EISDIR):
        return WeightsFileError(f"{path.name} cannot be read ({error})")
    return unreadable(path, error)


def for_shell(path: object) -> str:
    """Return a path for a command in a message, quoted where the shell would split it."""
    return shlex.quote(str(path))


def one_line(error: BaseException) -> str:
    """Return an error's message on one line of at most 300 characters, or its class name if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def printable(text: str) -> str:
    """Return foreign text on one line, with spaces for characters that could move the cursor or colour a terminal."""
    # Foreign text may hold escape sequences that would rewrite what a terminal shows.
    return "".join(character if character.isprintable() else " " for character in text).strip()


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean x?`, or the list of the known words if none is similar."""
    # Imported here: only wrong words need it, and a command's start is measured in milliseconds.
    import difflib

    known = sorted(known)
    close = difflib.get_close_matches(word[:100], known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(known)}" if known else "nothing is known here"


def without_passwords(text: str) -> str:
    """Mask the passwords of all URLs (`//user:…@`) in a text."""
    return _PASSWORD.sub(rf"\1{MASK}@", text)


def split_password(url: str) -> tuple[str, str]:
    """Split the password off a URL.

    Returns:
        The URL `SCHEME://[USER@]HOST…` without the password, and the password as it is encoded in the URL, or "".
    """
    scheme, separator, remainder = url.partition("://")
    authority = _AUTHORITY_END.split(remainder, maxsplit=1)[0]
    # At the last @: a password that was not escaped may contain one.
    login, _, host = authority.rpartition("@")
    user, _, password = login.partition(":")
    if not password:
        return url, ""
    return f"{scheme}{separator}{f'{user}@' if user else ''}{host}{remainder[len(authority) :]}", password
