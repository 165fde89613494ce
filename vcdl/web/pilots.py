"""Pilots that reach a pool's folder through the service: each route is one act of theirs there.

Every act may come twice, late, or with its answer lost: it names the workunit that it means.
"""

import re
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Path, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from vcdl.errors import DataError, RunFolderError, WorkunitError, folder_errors
from vcdl.files.atomic import temporary_name
from vcdl.pool.desks import Desk, Message, PoolFolder, is_pilot
from vcdl.run.frozen_job import read_frozen
from vcdl.web.service import needs, service_of
from vcdl.web.sessions import Role
from vcdl.wire.workunit import WorkunitName

router = APIRouter(prefix="/api/v1/pools/{name}", tags=["v1"])
_FETCHED = re.compile(r"model\.json|frozen\.h5|data/shards/shard_\d+\.npz|(?:snapshots|downloads)/params_v\d+\.h5")
"""What a subtask needs of a run's folder, and nothing else in it."""
_REASON_CHARACTERS = 2000
Name = Annotated[str, Path(max_length=64, description="the job's name")]
Pilot = Annotated[str, Path(max_length=80, description="the pilot's name")]


class TaskEnding(BaseModel):
    """How a task ended: an update, a reason, or neither."""

    chunks: list[str] = Field(default=[], max_length=10_000)
    """The update, by the SHA-256 of its pieces."""
    reason: str = Field(default="", max_length=_REASON_CHARACTERS)


def _pool(request: Request, name: str) -> PoolFolder:
    """The pool of a run; pilots are the operator's own machines. Raises Forbidden, RunFolderError."""
    needs(request, Role.OPERATOR)
    folder = service_of(request).folder(name)
    if read_frozen(folder).model.code is not None:
        raise RunFolderError(f"{name} brings code of its own, which a service sends to no pilot: use its folder")
    return PoolFolder.of(folder.path)


def _desk(request: Request, name: str, pilot: str) -> Desk:
    if not is_pilot(pilot):
        raise DataError(f"{pilot[:80]!r} is no name of a pilot")
    return _pool(request, name).desk(pilot)


@router.get("/driver")
def driver(request: Request, name: Name) -> dict[str, Any]:
    """What the run says to its pilots; null before it has begun."""
    pool = _pool(request, name)
    with folder_errors(pool.path):
        return {"driver": msgspec.to_builtins(pool.read_driver())}


@router.put("/bell/{pilot}")
def ring(request: Request, name: Name, pilot: Pilot, message: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """Leave a pilot's message. One that comes late says what was, and the next one mends it."""
    desk = _desk(request, name, pilot)
    try:
        said = msgspec.convert({**message, "pilot": pilot}, Message)
    except msgspec.ValidationError as error:
        raise DataError(f"this is no message of a pilot: {error}") from error
    with folder_errors(desk.path):
        _pool(request, name).ring(said)
    return {}


@router.put("/desks/{pilot}")
def arrive(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """Make the pilot's desk."""
    desk = _desk(request, name, pilot)
    with folder_errors(desk.path):
        desk.path.mkdir(exist_ok=True)
    return {}


@router.post("/desks/{pilot}/task")
def take(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """Take the next task up, or the one that was taken and not ended; `desk`: whether the run still knows the pilot."""
    desk = _desk(request, name, pilot)
    with folder_errors(desk.path):
        try:
            return {"desk": True, "task": msgspec.to_builtins(desk.taken() or desk.take())}
        except FileNotFoundError:
            return {"desk": False, "task": None}


@router.get("/desks/{pilot}/dropped")
def dropped(request: Request, name: Name, pilot: Pilot) -> dict[str, Any]:
    """The task that is not wanted any more; empty: none is."""
    desk = _desk(request, name, pilot)
    with folder_errors(desk.path):
        try:
            return {"desk": True, "workunit": desk.dropped()}
        except FileNotFoundError:
            return {"desk": False, "workunit": ""}


@router.delete("/desks/{pilot}/task/{workunit}")
def forget(request: Request, name: Name, pilot: Pilot, workunit: str) -> dict[str, Any]:
    """Lay a task aside."""
    desk = _desk(request, name, pilot)
    with folder_errors(desk.path):
        if _is_at_work_on(desk, workunit):
            desk.forget(workunit)
    return {}


@router.put("/desks/{pilot}/endings/{workunit}")
def end(request: Request, name: Name, pilot: Pilot, workunit: str, ending: TaskEnding) -> dict[str, Any]:
    """Hand in how a task ended; `desk`: whether it was of use."""
    desk = _desk(request, name, pilot)
    with folder_errors(desk.path):
        if not _is_at_work_on(desk, workunit):  # this has come twice, or the run has given the pilot up
            return {"desk": desk.path.is_dir()}
        if not ending.chunks:
            desk.end(workunit, ending.reason or None)
            return {"desk": True}
        update = temporary_name(desk.path / f"{workunit}.h5")
        try:
            with update.open("wb") as file:
                file.writelines(service_of(request).chunks.read(ending.chunks))
            desk.end(workunit, update)
        finally:
            update.unlink(missing_ok=True)
    return {"desk": True}


@router.get("/files/{path:path}")
def file(request: Request, name: Name, path: str) -> FileResponse:
    """A file that a subtask needs; ranges are answered."""
    pool = _pool(request, name)
    found = pool.run / path
    if not _FETCHED.fullmatch(path) or not found.is_file():
        raise DataError(f"{name} has no file {path[:100]!r} for pilots")
    return FileResponse(found, media_type="application/octet-stream")


def _is_at_work_on(desk: Desk, workunit: str) -> bool:
    """Whether it is the desk's task. Raises DataError for what names no workunit."""
    try:
        WorkunitName.parse(workunit)
    except WorkunitError as error:
        raise DataError(str(error)) from error
    task = desk.taken()
    return task is not None and task.workunit == workunit
