"""Every error VCDL raises on purpose, and the exit code that a command ends with.

    VcdlError
     ├─ JobError           the job file is wrong
     ├─ DataError          the data set cannot be had, or does not fit the job
     ├─ ModelError         the model cannot be built, or does not fit the data
     ├─ RunFolderError     the run's folder is busy, missing, read-only or full
     │   └─ RunFolderFull      * there is no room on its disk
     ├─ StoreError         the weight store cannot go on
     │   ├─ StoreUnavailable   * a service is away, or a file cannot be read
     │   └─ StoreLost          it has forgotten what it held: restore a snapshot
     ├─ JournalError       the journal cannot go on
     │   └─ JournalUnavailable * it cannot be written now: its disk is full
     ├─ GridError          the grid cannot run subtasks
     │   └─ GridUnavailable    * its database is away
     ├─ FleetError         the cloud, or the fleet's own part, cannot go on
     │   ├─ FleetUnavailable    * the cloud throttles, is at fault or cut off
     │   └─ FleetNotAuthorised  credentials are missing, expired or lack a right
     ├─ WorkunitError      workunit.json is not one of ours
     └─ WeightsFileError   params.h5 or update.h5 is not what it should be

     *  is Unavailable, too: what is needed may come back, so wait and try again

A message says what happened and then what to do about it.
"""

import errno
from enum import IntEnum
from pathlib import Path

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No room on the disk, in the user's quota, or in the largest file that the process may write."""


class ExitCode(IntEnum):
    """What `vcdl` tells the shell; documented in docs/commands.md."""

    OK = 0
    RUN_FAILED = 1
    """The run ended without reaching its end: a shard kept failing, or every worker did."""
    USAGE = 2
    """Wrong arguments (click's own code)."""
    BAD_JOB = 3
    BAD_DATA = 4
    BAD_MODEL = 5
    BAD_FOLDER = 6
    """The run's folder is busy, missing, read-only or on a full disk."""
    SERVICE = 7
    """The store, the journal or the grid cannot go on."""
    FLEET = 8
    """The cloud refuses, or something of a fleet is left over."""
    BUG = 70
    """An exception nobody expected: ours to mend."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C, cleanly; `vcdl resume` goes on."""


class VcdlError(Exception):
    """Base of all errors that carry a message for the user."""

    exit_code = ExitCode.RUN_FAILED


class Unavailable(VcdlError):
    """What is needed is away, full or busy: the same call works once that is mended, and has done nothing by halves until then. Whoever
    runs for long waits with backoff (vcdl.patience) and says so."""


class JobError(VcdlError):
    """The job file is wrong; the message starts with file, line and key."""

    exit_code = ExitCode.BAD_JOB


class DataError(VcdlError):
    """The data set cannot be had, is damaged, or does not fit the job."""

    exit_code = ExitCode.BAD_DATA


class ModelError(VcdlError):
    """The model cannot be built, is not safe to load, or does not fit the data."""

    exit_code = ExitCode.BAD_MODEL


class RunFolderError(VcdlError):
    """The run's folder is busy, missing, read-only or full."""

    exit_code = ExitCode.BAD_FOLDER


class RunFolderFull(RunFolderError, Unavailable):
    """The disk with the run's folder is full, or the user's share of it."""


class StoreError(VcdlError):
    """The weight store cannot go on."""

    exit_code = ExitCode.SERVICE


class StoreUnavailable(StoreError, Unavailable):
    """A server is away, starting, full or cut off, or this machine cannot read a file of weights that is there."""


class StoreLost(StoreError):
    """The server answers, but without the weights, or with older ones than were there: it lost its memory."""


class JournalError(VcdlError):
    """The journal cannot go on."""

    exit_code = ExitCode.SERVICE


class JournalUnavailable(JournalError, Unavailable):
    """The disk with the journal is full, or another process has held it for long."""


class GridError(VcdlError):
    """The grid cannot run subtasks."""

    exit_code = ExitCode.SERVICE


class GridUnavailable(GridError, Unavailable):
    """The grid's database is away, starting, full or busy."""


class FleetError(VcdlError):
    """The cloud refuses what the fleet needs, or something of it is left over."""

    exit_code = ExitCode.FLEET


class FleetUnavailable(FleetError, Unavailable):
    """The cloud throttles, is at fault or cannot be reached."""


class FleetNotAuthorised(FleetError):
    """The cloud's credentials are missing or expired, or lack a right: a user must mend them."""


class WorkunitError(VcdlError):
    """A workunit.json is damaged or of another version."""


class WeightsFileError(VcdlError):
    """A weights file is damaged, of another version, or not for this model."""


def folder_error(path: Path, error: OSError) -> RunFolderError:
    """An OSError of the run's folder, as a message that says what to do."""
    if error.errno == errno.ENOENT and not path.exists():
        return RunFolderError(f"there is no folder {path}: make it, or choose another")
    if error.errno in DISK_FULL:
        return RunFolderFull(
            f"{path}: {error.strerror or error}; free some space (`vcdl resume` goes on with a run that has ended)"
        )
    return RunFolderError(
        f"{path}: {error.strerror or error}; free some space or mend the folder's rights "
        "(or choose another with --out), then go on with `vcdl resume`"
    )


def weights_file_error(name: str, error: OSError) -> WeightsFileError | StoreUnavailable:
    """An OSError of a weights file: a sender answers for one that is missing or no file, this machine for whatever else."""
    if error.errno in (errno.ENOENT, errno.EISDIR):
        return WeightsFileError(f"{name} cannot be read ({error})")
    return StoreUnavailable(
        f"{name} is there, but this machine cannot read it ({error.strerror or error}): mend its disk, the rights or the limit of "
        "open files; or remove the file if it is lost"
    )
