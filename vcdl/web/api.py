"""The API of the service, `/api/v1`: the facts and commands of the command line, as JSON."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask

from vcdl.errors import ExitCode, VcdlError
from vcdl.files.version import __version__
from vcdl.journal.events import Recorded
from vcdl.run.reading import RunState
from vcdl.web.catalogue import PAGE, NoSuchJobError
from vcdl.web.dependencies import CallerHere, ServiceHere, SubmitterHere
from vcdl.web.job_page import epoch_lines, feed_of
from vcdl.web.live import EVERY_S, sse, while_valid
from vcdl.web.sent_job import SentFile
from vcdl.web.served_commands import CommandAnswer, CommandRequest
from vcdl.web.service import WebService

router = APIRouter(prefix="/api/v1", tags=["v1"])
_MOST_EVENTS = 1000
"""Events in one answer, so that its size is limited; a client asks for the next ones with `after`."""
_PING_S = 15.0
_QUICK_S = 15.0
"""Seconds until the answer to a slow command begins with a space, and between two spaces: proxies close a connection on
which nothing arrives for sixty seconds."""
_SUBMIT_WAIT_S = 10.0
"""Seconds until a submission that is still being checked is answered with its place in the line: most checks take six
seconds, and proxies close a silent connection after sixty."""
_ROW = 2**63 - 1
Name = Annotated[str, Path(max_length=64, description="the job's name")]
Cursor = Annotated[str, Query(max_length=300)]
State = Annotated[str, Query(pattern="^(|open|finished)$")]
CommandName = Annotated[str, Path(max_length=20)]
Digest = Annotated[str, Path(max_length=64)]
Digests = Annotated[list[str], Body(max_length=10_000)]
After = Annotated[int, Query(ge=0, le=_ROW, description="the journal's row after which to begin")]


class Submission(BaseModel):
    """The body of a submission: a job and its files."""

    job: str = Field(max_length=200_000)
    """Keys of the job file, as JSON."""
    files: list[SentFile] = Field(default=[], max_length=8)


class Command(BaseModel):
    """The body of a request to run `vcdl COMMAND ARGUMENTS OPTIONS`."""

    arguments: list[str] = Field(default=[], max_length=200)
    """Names of jobs; for `set` also KEY=VALUE, for `hosts ban` names of hosts."""
    options: dict[str, bool | str | list[str]] = Field(default={}, max_length=20)
    """Options, such as `{"--json": true, "--deadline": "6h"}`."""
    output: str = Field(default="", max_length=70)
    """Name of the file that the command writes."""
    columns: int = Field(default=80, ge=20, le=400)
    """Width of the command's lines, in characters."""
    new: Submission | None = None
    """A job that does not exist yet, for `plan` and `profile`."""


def _json(content: Any) -> Response:
    """Return a response with the content as JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(content), media_type="application/json")


@router.get("/version")
def version() -> dict[str, str]:
    """Return the version of the service."""
    return {"version": __version__}


@router.get("/jobs")
def jobs(
    service: ServiceHere, after: Cursor = "", limit: Annotated[int, Query(ge=1, le=200)] = PAGE, state: State = ""
) -> Response:
    """Return a page of the list of jobs, the open ones first.

    To get the next page, repeat the request with `after` from the answer; it is null on the last page.
    """
    page = service.catalogue.page(after, limit, state)
    return _json(
        {"jobs": [row.fields() for row in page.rows], "after": page.after, "count": page.jobs, "open": page.open}
    )


@router.get("/jobs/{name}")
def job(service: ServiceHere, name: Name) -> Response:
    """Return a job: the keys of `vcdl status --json`, its figures, and its last events in sentences (`feed`).

    `last_event` is the id of the newest journal row that the answer includes; continue from there with `events`. A job
    that has not started, or could not, has only its name, its `state` (`beginning`, `failed`) and the error.
    """
    if service.submissions.is_beginning(name):
        return _json({"job": name, "state": "beginning"})
    try:
        view = service.catalogue.view(name)
    except NoSuchJobError:
        if failure := service.submissions.failure(name):
            return _json({"job": name, "state": "failed", "error": failure})
        raise
    with view.current():
        standing = view.standing
        feed = [{"time_s": line.time_s, "words": line.words} for line in reversed(feed_of(view, *epoch_lines(view)))]
        shown = {"folder": name, "last_event": view.last_id, "figures": standing.figures(), "feed": feed}
        return _json({**standing.fields(), **shown})


@router.get("/jobs/{name}/events")
def events(
    service: ServiceHere, name: Name, after: After = 0, limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 200
) -> Response:
    """Return the events of a job's journal after a row, in order; `next` is the row to continue from."""
    found, _ = _rows(service, name, after, limit)
    return _json({"events": [_event(one) for one in found], "next": found[-1].id if found else after})


@router.get("/jobs/{name}/events/stream", response_class=StreamingResponse)
async def events_stream(
    service: ServiceHere,
    caller: CallerHere,
    name: Name,
    after: After = 0,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
) -> StreamingResponse:
    """Stream the same as server-sent events, with the journal's rows as ids, until the job is over."""
    # Check this before the answer starts: a job that does not exist must be a 404, and not an error within the stream.
    await asyncio.to_thread(service.catalogue.folder, name)
    # A browser that reconnects sends the id of the last row that it got; it counts more than the address's own `after`.
    begin = int(last_event_id) if last_event_id.isdecimal() else after
    messages = while_valid(_stream(service, name, min(begin, _ROW)), lambda: service.is_valid(caller))
    return StreamingResponse(messages, media_type="text/event-stream")


@router.post("/chunks", status_code=200)
def missing_chunks(service: ServiceHere, caller: SubmitterHere, names: Digests) -> dict[str, list[str]]:
    """Return which of these chunks, named by their SHA-256, the caller still has to send."""
    return {"missing": service.chunks.missing(caller.name, names)}


@router.put("/chunks/{digest}", status_code=204)
async def put_chunk(request: Request, service: ServiceHere, caller: SubmitterHere, digest: Digest) -> None:
    """Store a chunk of at most 8 MiB, named by its SHA-256. Repeating the request changes nothing."""
    await asyncio.to_thread(service.chunks.put, caller.name, digest, await request.body())


@router.post("/jobs", status_code=202)
async def submit(
    service: ServiceHere,
    caller: SubmitterHere,
    sent: Submission,
    idempotency_key: Annotated[str, Header(min_length=8, max_length=100, pattern=r"^[\x21-\x7e]+$")],
) -> dict[str, Any]:
    """Submit a job.

    The job is checked first, when its turn comes. The answer is `{"job": NAME}`. If the check takes longer than ten
    seconds, it is `{"state": "waiting", "place": 3}`, where place 0 means that the check is in progress: then repeat
    the request with the same Idempotency-Key. However often it is repeated, one job is created.
    """
    found = await service.submit(caller, idempotency_key, sent.job, sent.files, _SUBMIT_WAIT_S)
    return {"job": found} if isinstance(found, str) else {"state": "waiting", "place": found}


@router.post("/jobs/{name}/stop", status_code=202)
def stop(service: ServiceHere, caller: CallerHere, name: Name) -> dict[str, str]:
    """Request that a job pauses. It does so within seconds, and keeps every applied update."""
    return {"message": service.stop(caller, name)}


@router.post("/jobs/{name}/resume", status_code=202)
def resume(service: ServiceHere, caller: CallerHere, name: Name) -> dict[str, str]:
    """Continue a job that was paused, killed or given up."""
    return {"message": service.resume(caller, name)}


@router.post("/commands/{command}")
async def run_command(service: ServiceHere, caller: CallerHere, command: CommandName, asked: Command) -> Response:
    """Run a command of the command line on the service's machine, and return its output.

    Commands are `status`, `profile`, `plan`, `compare`, `plot`, `export`, `hosts`, `set`, `note`, `stop`, `resume`,
    `hosts ban` and `hosts unban`. The answer is `{"output": …, "errors": …, "exit_code": …, "file": …}`. If a command
    takes long, spaces precede the answer, so that a proxy keeps the connection.
    """

    def run() -> CommandAnswer:
        sent = asked.new
        new = None if sent is None else service.submissions.inspect_job(caller, sent.job, sent.files)
        wanted = CommandRequest(command, asked.arguments, asked.options, asked.output, asked.columns, new)
        return service.run_command(caller, wanted)

    # Run it as a task, so that the command continues while this coroutine waits, and its answer or error is still there
    # afterwards.
    running = asyncio.create_task(run_in_threadpool(run))
    if (await asyncio.wait([running], timeout=_QUICK_S))[0]:
        return _json(asdict(running.result()))
    return StreamingResponse(_spaces_before(running), media_type="application/json")


@router.get("/outputs/{folder}/{name}", response_class=FileResponse)
def output(service: ServiceHere, folder: str, name: str) -> FileResponse:
    """Return a file that a command wrote, and delete it: it can be fetched once, within an hour of the command."""
    path = service.commands.written_file(folder, name)
    # Delete the file after it was sent. A caller whose connection breaks has to run the command again.
    forget = BackgroundTask(shutil.rmtree, path.parent, ignore_errors=True)
    return FileResponse(path, media_type="application/octet-stream", background=forget)


@router.get("/jobs/{name}/files/{file}", response_class=FileResponse)
def file(service: ServiceHere, name: Name, file: str) -> FileResponse:
    """Return a file of a finished run: the model, its results, its curves."""
    return service.file(name, file)


async def _spaces_before(running: "asyncio.Task[CommandAnswer]") -> AsyncGenerator[bytes, None]:
    """Yield a space every 15 s until a command ends, then its answer as JSON.

    The status 200 is sent with the first space. So an error is reported in the answer, as `errors` and `exit_code`.
    """
    while not (await asyncio.wait([running], timeout=_QUICK_S))[0]:
        yield b" "
    try:
        answer = running.result()
    except VcdlError as error:
        answer = CommandAnswer("", f"vcdl: error: {error}\n", ExitCode.RUN_FAILED)
    yield msgspec.json.encode(asdict(answer))


def _event(recorded: Recorded) -> dict[str, Any]:
    event = recorded.event
    return {"id": recorded.id, "time_s": recorded.time_s, "kind": event.kind, **msgspec.structs.asdict(event)}


def _rows(service: WebService, name: str, after: int, limit: int) -> tuple[list[Recorded], bool]:
    """Return at most `limit` journal rows after row `after`, and whether the job is over and these are its last."""
    with service.catalogue.view(name).current() as view:
        found = view.rows_after(after, limit)
        # A stream ends only when the job is over and all its rows were sent: a page of `limit` rows may not be the
        # last.
        is_over = view.standing.state in (RunState.FINISHED, RunState.FAILED)
        return found, is_over and len(found) < limit


async def _stream(service: WebService, name: str, after: int) -> AsyncGenerator[bytes, None]:
    quiet_s = 0.0
    while True:
        try:
            found, is_over = await asyncio.to_thread(_rows, service, name, after, _MOST_EVENTS)
        except VcdlError as error:
            yield sse("problem", msgspec.json.encode({"detail": str(error)}).decode())
            return
        if found:
            yield b"".join(sse("event", msgspec.json.encode(_event(one)).decode(), one.id) for one in found)
            after, quiet_s = found[-1].id, 0.0
        if is_over:
            yield sse("over", "{}")
            return
        # A full page is followed by the next one immediately: a reader who starts at row 0 catches up without waiting.
        if len(found) < _MOST_EVENTS:
            await asyncio.sleep(EVERY_S)
            quiet_s += EVERY_S
        if quiet_s >= _PING_S:
            yield b": still here\n\n"
            quiet_s = 0.0
