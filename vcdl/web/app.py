"""Build the service as an ASGI application, and run its server."""

import asyncio
import ctypes
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from vcdl.errors import ExitCode, GridError, VcdlError, without_passwords
from vcdl.files.version import __version__
from vcdl.web import api, pilots, routes
from vcdl.web.guard import Guard
from vcdl.web.metrics import CONTENT_TYPE
from vcdl.web.problems import problem, status_of
from vcdl.web.recent import RecentAnswers
from vcdl.web.service import Forbidden, WebService
from vcdl.web.submission_line import RETRY_S, LineFull

_MOST_CONNECTIONS = 1000
"""Most connections: twice MOST_WATCHERS, so that pages are answered while as many streams are open."""
_END_S = 2
"""Seconds that open streams get at the end of the service, so that a restart is short."""
_M_ARENA_MAX = -8
"""glibc's option M_ARENA_MAX, which is set to 1: an arena for each request thread takes some 10 MB in all and saves no
time, because Python runs one thread at a time (docs/measured/service.md)."""
_log = logging.getLogger("vcdl.web")

Describe = Callable[[Exception], tuple[str, ExitCode]]
"""Returns the message and the exit code for an exception, bugs included."""


def create_app(service: WebService, describe: Describe, hosts: Sequence[str] = ()) -> FastAPI:
    """Create the ASGI application: pages, API and metrics, behind the guard.

    Args:
        service: The parts that answer requests.
        describe: Returns the message and the exit code for an exception that is no VcdlError.
        hosts: Host names besides the loopback ones under which callers reach the service; requests to others get 421.
    """
    app = FastAPI(
        title="VCDL",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.service = service
    for router in (routes.router, api.router, pilots.router):  # the first costs the least
        app.include_router(router)

    @app.get("/healthz", tags=["v1"])
    def healthz() -> dict[str, str]:  # no coroutine: it takes a thread as pages do, and fails when they get none
        """Return whether the service answers."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["v1"])
    def metrics(request: Request) -> Response:
        """Metrics for Prometheus, at most ten seconds old."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    app.mount("/static", StaticFiles(packages=[("vcdl.web", "static")]))

    @app.exception_handler(VcdlError)
    def of_ours(request: Request, error: VcdlError) -> Response:
        if isinstance(error, Forbidden):
            return _answer(request, 403, str(error))
        answer = _answer(request, status_of(error), without_passwords(str(error)), error.exit_code)
        if isinstance(error, LineFull):
            answer.headers["retry-after"] = str(RETRY_S)
        return answer

    @app.exception_handler(HTTPException)
    def of_http(request: Request, error: HTTPException) -> Response:
        words = {404: "there is no such page", 405: "this cannot be done here"}.get(error.status_code, error.detail)
        return _answer(request, error.status_code, words)

    @app.exception_handler(RequestValidationError)
    def of_values(request: Request, error: RequestValidationError) -> Response:
        # Report only the first error, on one line, as the command line does: pydantic's full list is for programmers.
        first = error.errors()[0]
        words = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
        return _answer(request, 422, words, ExitCode.USAGE)

    @app.exception_handler(ClientDisconnect)
    def of_nobody_left(request: Request, error: ClientDisconnect) -> Response:
        return problem(400, "the request body was not received completely, or was too large")

    @app.exception_handler(Exception)
    def of_bugs(request: Request, error: Exception) -> Response:
        words, code = describe(error)
        _log.error("%s %s: %s", request.method, request.url.path, words)
        return _answer(request, 500, words, code)

    # Starlette runs the middleware that was added last first. So the guard comes before the answers of the last second:
    # an answer that was kept is never sent to a caller without permission.
    app.add_middleware(RecentAnswers)
    app.add_middleware(Guard, service=service, hosts=hosts)
    return app


def _answer(request: Request, status: int, words: str, code: ExitCode | None = None) -> Response:
    """Return the response for an error: a page for a browser, otherwise JSON as in RFC 9457.

    Visitors get a general message instead of `words`, which may name a file of the server; 404 and 405 keep theirs.
    """
    if routes.is_visitor(request) and status not in (404, 405):
        words = "this cannot be shown now"
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return problem(status, words, code)
    return routes.error_page(request, status, HTTPStatus(status).phrase, words)


def mount(app: ASGIApp, base: str) -> ASGIApp:
    """Return the application below a path of a web server, such as /lab_vcdl; requests elsewhere get a 404."""

    async def below(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # Turn a path outside of the base into one that does not exist, instead of answering 404 here: so the guard
            # checks these requests, too.
            is_below = scope["path"].startswith(f"{base}/")
            path = scope["path"].removeprefix(base) if is_below else "/nothing-here"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return below


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that already listens on an address. With `port` 0 the system chooses a free port.

    Raises:
        GridError: The port cannot be used.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sends small answers immediately only on sockets with an explicit protocol: others wait 40 ms for the
    # client.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen()  # callers may connect as soon as they know the address
    except (OSError, OverflowError) as error:
        listener.close()
        raise GridError(
            f"cannot listen on {address}, port {port} ({error}): choose another port with --port"
        ) from error
    return listener


class TimedConnection(H11Protocol):
    """Closes a connection if the complete head of its next request does not arrive within 15 to 30 seconds.

    A check runs every `head_s` seconds, and closes a connection that has waited for the same request since the check
    before. uvicorn alone would let a client that sends half a head hold its connection forever.
    """

    head_s = 15.0
    """Half of the longest time for a request's head, in seconds; longer than uvicorn keeps an idle connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A new object differs from every cycle, so a connection has `head_s` before the first comparison can end it.
        self._look(object())

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self, before: object) -> None:
        """Close the connection if it has waited for the same request since the last check; otherwise check again later.

        Args:
            before: uvicorn's cycle of request and response at the last check.
        """
        cycle: Any = self.cycle
        # uvicorn's own keep-alive time-out starts after an answer. A client that sends half of a head, or none, would
        # hold its connection forever.
        waits: bool = cycle is None or cycle.response_complete
        if waits and before is cycle:
            self.transport.close()
            return
        self._next_look = self.loop.call_later(self.head_s, self._look, cycle)


def serve(app: ASGIApp, listener: socket.socket, behind_proxy: bool = False) -> None:
    """Answer requests until Ctrl-C or SIGTERM.

    Args:
        app: The application.
        listener: The listening socket.
        behind_proxy: Take the callers' addresses from the headers that a web server of this machine adds when it
            forwards requests.
    """
    with suppress(AttributeError):  # another libc than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=behind_proxy,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_END_S,
    )
    uvicorn.Server(config).run(sockets=[listener])
