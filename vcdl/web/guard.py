"""The checks that every request passes before the service sees it.

Without a session or a token only the login page, static assets and the health check are open. A public service also
exposes the job list and the job pages, as `vcdl.web.job_page` draws them for visitors.
"""

import asyncio
import re
import time
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcdl.web.chunks import CHUNK_BYTES
from vcdl.web.problems import problem
from vcdl.web.request_rate import RequestRate
from vcdl.web.service import WebService
from vcdl.web.sessions import COOKIE, Caller, Role, is_same

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names by which this machine reaches itself: `ssh -L` ends at one of them, with any port."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_OF_WORKERS = re.compile(r"/api/v1/(pools/.*|version)")
"""Paths that a token of the role worker may request: the pools', and the version, by which `vcdl login` checks that a
token is valid."""
_PUBLIC = re.compile(r"/login|/healthz|/static/[a-z.]+\.(css|js|svg)")
_VISITED = re.compile(r"/|/jobs/[^/]+")
"""Paths of a public service that are open without a session or a token."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_BYTES = 1 << 20
"""Most bytes of a request's body, except for a chunk's."""
_BODY_WAIT_S = 30.0
"""Seconds that a body may stall, so that slow clients do not occupy connections."""
_BODY_S = 600.0
"""Seconds that a whole body may take: enough for a chunk over a slow link."""

_BURST, _STEADY = 300.0, 50.0
"""Requests that a caller may send in a burst, and per second."""
_VISITS, _STEADY_VISITS, _ALL_VISITS = 60.0, 5.0, 20.0
"""Requests that one visitor's address may send in a burst, and per second; and that all visitors together may send per
second (their burst is _BURST)."""


class Guard:
    """Decides as the outermost layer whether a request may pass, and sets the security headers of every response.

    A request passes if its Host is the service's own (against DNS rebinding), its body is small enough, no page of
    another site sent it, its caller is known or the page is public, and its caller has not sent too many. The caller
    is then in `request.state.caller` (None for visitors). The roles beyond worker are checked by the routes.
    """

    def __init__(self, app: ASGIApp, service: WebService, hosts: Collection[str] = ()) -> None:
        """Prepare the guard.

        Args:
            app: The application behind the guard.
            service: The parts that know tokens and sessions.
            hosts: Host names besides LOOPBACK under which callers reach the service.
        """
        self._app = app
        self._service = service
        self._rate = RequestRate(_BURST, _STEADY)
        self._visits = RequestRate(_VISITS, _STEADY_VISITS)
        self._all_visits = RequestRate(_BURST, _ALL_VISITS)
        self._hosts = frozenset((*LOOPBACK, *(host.lower() for host in hosts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        refusal = self._refusal(asked)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                keeps = scope["path"].startswith("/static/")  # if the browser asks whether it is the newest
                headers.setdefault("cache-control", "no-cache" if keeps else "no-store")
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, _limit_body(receive, _limit(scope["path"])), send_with_headers)

    def _refusal(self, asked: HTTPConnection) -> Response | None:
        """Return the response that refuses a request, or None if it may pass; set `caller` in the request's state."""
        # Use the path that the routes match: in older Starlettes the path of `asked.url` ends at a question mark in a
        # name.
        path, method = asked.scope["path"], asked.scope["method"]
        # This prevents DNS rebinding: a page of another site whose name resolves to this machine sends that site's name
        # as Host.
        host = re.sub(r":\d+$", "", asked.headers.get("host", "")).lower()
        if host not in self._hosts:
            return problem(
                421, f"this service is not {host[:80]!r}: use the service's own host name, or start it with --host-name"
            )
        # Check the announced length before anything is read; `_limit_body` enforces it for the body.
        if int(re.sub(r"\D", "", asked.headers.get("content-length", "")) or 0) > _limit(path):
            return problem(413, "the body is too large")
        if method not in _SAFE and _is_of_another_site(asked):
            return problem(403, "this form was sent by another site: use the page of this service")
        caller, why = self._caller(asked)
        asked.scope.setdefault("state", {})["caller"] = caller
        if _PUBLIC.fullmatch(path):
            return None
        if caller is None:
            return self._refusal_of_visitor(asked, why)
        if caller.role is Role.WORKER and not _OF_WORKERS.fullmatch(path):
            return problem(403, f"{caller.name} may only train for pools: this token is of the role worker")
        # Count a request only after the check of the role: refusing one costs too little to need a limit.
        if self._rate.is_too_high(caller.name):
            return problem(429, f"{caller.name} sends too many requests: {_STEADY:g} a second are allowed")
        return None if method in _SAFE else _refusal_of_session(asked, caller)

    def _refusal_of_visitor(self, asked: HTTPConnection, why: Response) -> Response | None:
        """Return None if a caller who is not logged in may see the page, otherwise the response that refuses it.

        Args:
            asked: The request.
            why: The response if the page is not public.
        """
        is_visit = self._service.is_public and asked.scope["method"] == "GET" and "authorization" not in asked.headers
        if not is_visit or not _VISITED.fullmatch(asked.scope["path"]):
            return why
        # Both limits: one address must not crowd out the others, and all visitors together must not slow down those who
        # are logged in.
        if self._visits.is_too_high(_address(asked)) or self._all_visits.is_too_high(""):
            return problem(429, "there are too many visitors now: try again in a minute")
        return None

    def _caller(self, asked: HTTPConnection) -> tuple[Caller | None, Response]:
        """Return the caller of a request, by its token or its session's cookie.

        Returns:
            The caller, or None if unknown; and the response that refuses an unknown caller, unused otherwise: 401 for
            a program, 429 for too many wrong tokens, and for a browser a redirect to the login page.
        """
        given = asked.headers.get("authorization", "")
        # A token takes precedence over a cookie, because a program sends it deliberately.
        if given:
            caller, wait_s = self._service.of_token(given.removeprefix("Bearer ").strip(), _address(asked))
            if wait_s > 0:
                return None, too_many(wait_s)
            return caller, problem(401, "this token is unknown, expired or revoked: ask the operator for another")
        cookie = asked.cookies.get(COOKIE, "")
        subject = self._service.sessions.subject(cookie) if cookie else None
        caller = None if subject is None else self._service.caller_of_subject(subject)
        if caller is not None:
            return replace(caller, csrf=self._service.sessions.csrf(cookie)), Response()
        path = asked.scope["path"]
        if path.startswith("/api/") or path == "/metrics":
            return None, problem(401, "a token is needed: `Authorization: Bearer vcdl_…`, as `vcdl login` keeps one")
        return None, RedirectResponse(f"{self._service.base}/login?next={quote(path)}", 303)


def _is_of_another_site(asked: HTTPConnection) -> bool:
    """Return whether a page of another site sent the request.

    Older browsers, and all browsers that use plain HTTP from another machine, do not send Sec-Fetch-Site. For them the
    Origin is compared with the Host.
    """
    if site := asked.headers.get("sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = asked.headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != asked.headers.get("host", "").lower()


def _refusal_of_session(asked: HTTPConnection, caller: Caller) -> Response | None:
    """Return None if a changing request has the CSRF secret of its session, otherwise the response that refuses it.

    Callers with a token have no session, so they always pass. So do forms, whose secret the routes check.
    """
    # A form has the secret in its body, where vcdl.web.routes checks it; all other requests have it in a header.
    is_form = asked.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    if not caller.csrf or (is_form and not asked.scope["path"].startswith("/api/")):
        return None
    given = asked.headers.get("x-csrf-token", "")
    return None if is_same(given, caller.csrf) else problem(403, "the header X-CSRF-Token is missing or wrong")


def _address(asked: HTTPConnection) -> str:
    return asked.client.host if asked.client else ""


def too_many(wait_s: float) -> Response:
    """Return the response for an address with too many failed logins, which may try again after `wait_s` seconds."""
    refused = problem(429, f"too many failed logins: wait {wait_s:.0f} s")
    refused.headers["retry-after"] = f"{wait_s + 1:.0f}"
    return refused


def _limit(path: str) -> int:
    """Return the largest allowed size of a request's body at a path, in bytes."""
    return CHUNK_BYTES if path.startswith("/api/v1/chunks/") else _MOST_BYTES


def _limit_body(receive: Receive, most: int) -> Receive:
    """Wrap `receive` so that the request ends as a disconnect if its body is too large or too slow.

    Args:
        receive: Receives the parts of the request.
        most: Most bytes of the body, whatever its Content-Length announces.
    """
    got, is_whole, end_s = 0, False, time.monotonic() + _BODY_S

    async def receive_limited() -> Message:
        nonlocal got, is_whole
        if is_whole:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), min(_BODY_WAIT_S, end_s - time.monotonic()))
        except TimeoutError:
            return {"type": "http.disconnect"}
        got += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        return {"type": "http.disconnect"} if got > most else message

    return receive_limited
