"""Serve pilots that reach a pool's folder through the service: each route is one action of a pilot.

Any request may arrive twice or late, or its answer may be lost, and the pilot then repeats it. Therefore every request
about a task names the workunit: one about a task that is no longer the pilot's current one changes nothing.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeGuard

import msgspec
from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from vcdl.codecs.choose import up_encoding
from vcdl.errors import DataError, WorkunitError, folder_errors
from vcdl.files.shared import NotRegular, discard, held, regular
from vcdl.pool.mailboxes import Mailbox, PoolFolder
from vcdl.pool.messages import KEY_HEADER, Message, host_of, is_pilot, mark_of
from vcdl.pool.run_files import FETCHED
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.web.dependencies import needs
from vcdl.web.served_commands import ServiceBusy
from vcdl.web.service import Forbidden
from vcdl.web.sessions import Role
from vcdl.wire.workunit import WorkunitName

router = APIRouter(prefix="/api/v1/pools/{name}", tags=["v1"])
_REASON_CHARACTERS = 2000
"""Most characters of a pilot's reason for a failure: enough for a traceback's end."""
_MOST_PILOTS = 64
"""Simultaneous pilots of one token in a pool, at most, so that a leaked token cannot fill the folder."""
_HEADER_BYTES = 1 << 20
Name = Annotated[str, Path(max_length=64, description="the job's name")]
Piece = Annotated[bytes, Body(media_type="application/octet-stream", max_length=1 << 20)]
Pilot = Annotated[str, Path(max_length=80, description="the pilot's name")]


class TaskEnding(BaseModel):
    """How a task ended: with an update (`sha256`), with a failure (`reason`), or interrupted (both empty)."""

    sha256: str = Field(default="", max_length=64)
    """SHA-256 of the update, all of whose pieces have been sent."""
    reason: str = Field(default="", max_length=_REASON_CHARACTERS)
    """Why the training failed."""


def _run(request: Request, name: str) -> RunFolder:
    """Check that the caller may use the pool of a job, and return the job's run folder.

    Raises:
        Forbidden: The caller's role or token does not allow it.
        NoSuchJobError, RunFolderError: There is no such job, or it has not started.
    """
    caller = request.state.caller
    if caller.role is not Role.WORKER:
        needs(caller, Role.OPERATOR)
    elif caller.bounds.job not in (None, name):
        raise Forbidden(f"{caller.name} may only train for the job {caller.bounds.job}")
    folder: RunFolder = request.app.state.service.folder(name)
    return folder


def _pool(request: Request, name: str) -> PoolFolder:
    return PoolFolder.of(_run(request, name).path)


def _mailbox(request: Request, name: str, pilot: str) -> Mailbox:
    """Check that a pilot is the caller's, and return its mailbox, which may not exist.

    A worker's pilot belongs to a token and to a machine. Its name contains the token's id and a mark that is derived
    from the machine's secret key, which every request sends. The name of its host contains them, too. So machines that
    share a token cannot impersonate each other, and each host is judged only by its own uploads.

    Raises:
        Forbidden: The pilot belongs to another caller or machine.
        DataError: The name is invalid.
    """
    pool, caller = _pool(request, name), request.state.caller
    if not is_pilot(pilot):
        raise DataError(f"{pilot[:80]!r} is not a valid name of a pilot")
    if caller.role is Role.WORKER and not pilot.startswith(f"{caller.id}."):
        raise Forbidden(f"{pilot} is not a pilot of {caller.name}: their names begin with {caller.id} and a full stop")
    if caller.role is Role.WORKER and not host_of(pilot).endswith(f".{mark_of(request.headers.get(KEY_HEADER, ''))}"):
        raise Forbidden(f"{pilot} is a pilot of another machine: start `vcdl worker` there")
    return pool.mailbox(pilot)


@contextmanager
def _held(request: Request, name: str, pilot: str) -> Iterator[Mailbox | None]:
    """Yield the opened mailbox of a caller's pilot, or None if the run has removed it.

    Raises:
        Forbidden, DataError: As for `_mailbox`.
        RunFolderError: The folder cannot be read.
    """
    mailbox = _mailbox(request, name, pilot)
    with folder_errors(mailbox.path), ExitStack() as stack:
        at_hand = None
        # Open the folder once for the whole request: the run may remove it at any moment. The answer then says that it
        # is gone, instead of being an error.
        with suppress(FileNotFoundError):
            at_hand = stack.enter_context(mailbox.held())
        yield at_hand


@router.get("/driver")
def driver(request: Request, name: Name) -> dict[str, Any]:
    """Return what the run's process has announced to all pilots; null before it has started."""
    pool = _pool(request, name)
    with folder_errors(pool.path):
        return {"driver": msgspec.to_builtins(pool.read_driver())}


@router.put("/heartbeats/{pilot}")
def ring(request: Request, name: Name, pilot: Pilot, message: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """Store a pilot's heartbeat, replacing the previous one. One that arrives late is corrected by the next.

    In the answer, `mailbox` is whether the run still knows the pilot; if not, nothing is stored.
    """
    try:
        said = msgspec.convert({**message, "pilot": pilot}, Message)
    except (msgspec.ValidationError, UnicodeError) as error:  # UnicodeError: a key contains an unpaired surrogate
        raise DataError(f"this is not a valid message of a pilot: {error}") from error
    with _held(request, name, pilot) as mailbox:
        if mailbox is not None:
            _pool(request, name).ring(said)
        return {"mailbox": mailbox is not None}


@router.put("/mailboxes/{pilot}")
def arrive(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """Create the pilot's mailbox unless it exists, and announce the pilot to the run."""
    mailbox, pool, number = _mailbox(request, name, pilot), _pool(request, name), request.state.caller.id
    with folder_errors(mailbox.path):
        of_caller = [other for other in pool.pilots() if other.startswith(f"{number}.")]
        if len(of_caller) >= _MOST_PILOTS and pilot not in of_caller:
            raise ServiceBusy(f"{request.state.caller.name} has {_MOST_PILOTS} pilots in {name}: this is the limit")
        # Create it through an open folder, so that a link in its place cannot lead the new mailbox elsewhere.
        with held(pool.path, "desks") as mailboxes:
            (mailboxes / pilot).mkdir(exist_ok=True)
        # Announce the pilot after the mailbox exists: the run answers a message by writing into it.
        pool.ring(Message(pilot, 0))
    return {"mailbox": True}


@router.post("/mailboxes/{pilot}/task")
def take(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """Take the next task out of the pilot's mailbox, or return the one that the pilot has already taken.

    In the answer, `mailbox` is whether the run still knows the pilot; `task` is null if there is none now.
    """
    with _held(request, name, pilot) as mailbox, suppress(FileNotFoundError):
        if mailbox is not None:
            return {"mailbox": True, "task": msgspec.to_builtins(mailbox.taken_task() or mailbox.take())}
    return {"mailbox": False, "task": None}


@router.get("/mailboxes/{pilot}/dropped")
def dropped(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """Return the workunit of the pilot's task if the run no longer needs its result, otherwise an empty string."""
    with _held(request, name, pilot) as mailbox, suppress(FileNotFoundError):
        if mailbox is not None:
            return {"mailbox": True, "workunit": mailbox.dropped_workunit()}
    return {"mailbox": False, "workunit": ""}


@router.delete("/mailboxes/{pilot}/task/{workunit}")
def forget(request: Request, name: Name, pilot: Pilot, workunit: str) -> dict[str, Any]:
    """Remove a task that the pilot has given up because the run no longer needs its result."""
    with _held(request, name, pilot) as mailbox:
        if _is_at_work_on(mailbox, workunit):
            mailbox.forget(workunit)
    return {"mailbox": True}


@router.get("/mailboxes/{pilot}/updates/{workunit}")
def has_come(request: Request, name: Name, pilot: Pilot, workunit: str) -> dict[str, Any]:
    """Return how many bytes of an update have arrived, where an interrupted upload resumes.

    `size_bytes` is null if the workunit is not the pilot's current task: its end was recorded, or it was dropped.
    """
    with _held(request, name, pilot) as mailbox:
        if not _is_at_work_on(mailbox, workunit):
            return {"mailbox": mailbox is not None, "size_bytes": None}
        with suppress(FileNotFoundError):
            return {"mailbox": True, "size_bytes": _partial_upload(mailbox, workunit).lstat().st_size}
        return {"mailbox": True, "size_bytes": 0}


@router.put("/mailboxes/{pilot}/updates/{workunit}")
def add_piece(
    request: Request, name: Name, pilot: Pilot, workunit: str, offset: Annotated[int, Query(ge=0)], piece: Piece
) -> dict[str, Any]:
    """Write a piece of at most 1 MiB of an update at its offset, and answer as GET does.

    Repeating a piece changes nothing. A piece beyond the end of what has arrived is ignored.
    """
    with _held(request, name, pilot) as mailbox:
        if _is_at_work_on(mailbox, workunit):
            part, run = _partial_upload(mailbox, workunit), Run.open(_run(request, name))
            # Before anything is written, refuse what is larger than any update of this job, so that a token cannot fill
            # the disk.
            if offset + len(piece) > up_encoding(run.transport, run.layout).most_file_bytes + _HEADER_BYTES:
                raise DataError(f"{workunit}: this is larger than any update of this job")
            # A pilot has one task at a time, so a partial upload of another workunit will never be completed.
            for old in mailbox.path.glob(".*.part"):
                if old != part:
                    discard(old)
            # Write each piece at its offset: the same piece may arrive twice simultaneously.
            with open(regular(part, os.O_RDWR | os.O_CREAT), "r+b") as file:
                # Never write beyond the end: a gap would be filled with zeros, and only the checksum at the end would
                # show it.
                if offset <= file.seek(0, os.SEEK_END):
                    file.seek(offset)
                    file.write(piece)
    return has_come(request, name, pilot, workunit)


@router.put("/mailboxes/{pilot}/endings/{workunit}")
def end(request: Request, name: Name, pilot: Pilot, workunit: str, ending: TaskEnding) -> dict[str, Any]:
    """Record how a task ended, and hand its update to the run. Repeating the request changes nothing.

    In the answer, `mailbox` is whether the run still knows the pilot.
    """
    with _held(request, name, pilot) as mailbox:
        if not _is_at_work_on(mailbox, workunit):  # a repetition, or the run has given the pilot up
            return {"mailbox": mailbox is not None}
        update = _partial_upload(mailbox, workunit)
        if not ending.sha256:
            mailbox.end(workunit, ending.reason or None)
        elif _sha256(update) == ending.sha256:
            mailbox.end(workunit, update)
        else:
            discard(update)
            raise DataError(f"the update of {workunit} was damaged in transit: send it again")
    return {"mailbox": True}


@router.get("/files/{path:path}")
def file(request: Request, name: Name, path: str) -> FileResponse:
    """Return a file that a subtask needs; with a Range header, only a part of it."""
    pool = _pool(request, name)
    found = pool.run / path
    # Allow only the files that subtasks name: the run's folder also contains its journal and the labels of validation
    # data.
    if not FETCHED.fullmatch(path) or not found.is_file():
        raise DataError(f"{name} has no file {path[:100]!r} for pilots")
    return FileResponse(found, media_type="application/octet-stream")


def _partial_upload(mailbox: Mailbox, workunit: str) -> FilePath:
    """Return the path of the file that collects the pieces of an update."""
    return mailbox.path / f".{workunit}.part"


def _sha256(path: FilePath) -> str:
    """Return the SHA-256 of a regular file, or "" if there is no file or it is not a regular one."""
    with suppress(FileNotFoundError, NotRegular), open(path, "rb", opener=regular) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def _is_at_work_on(mailbox: Mailbox | None, workunit: str) -> TypeGuard[Mailbox]:
    """Return whether the mailbox exists and this workunit is its task.

    Raises:
        DataError: The workunit's name is invalid.
    """
    try:
        WorkunitName.parse(workunit)
    except WorkunitError as error:
        raise DataError(str(error)) from error
    task = None if mailbox is None else mailbox.taken_task()
    return task is not None and task.workunit == workunit
