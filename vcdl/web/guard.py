"""The checks that every request passes before the service sees it.

Nobody gets anything without a session or a token but the page to log in, style and script, and the health check.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcdl.web.problems import problem
from vcdl.web.sessions import COOKIE, Caller, Role, Sessions, is_same

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names under which this machine knows itself: `ssh -L` ends at one of them, with any port."""
_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]  # fmt: skip
_OF_WORKERS = re.compile(r"/api/v1/(pools/.*|version)")
"""All that a token of the role worker opens; `vcdl login` tries a token by asking for the version."""
_FRESH = (b"cache-control", b"no-store")
_PUBLIC = re.compile(r"/login|/healthz|/static/[a-z]+\.(css|js|svg)")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_BYTES = 1 << 20
"""The largest body of a request but a chunk's."""
CHUNK_BYTES = 8 << 20
"""The size of the chunks in which data travel."""
_BODY_WAIT_S = 30.0
"""The longest that a body may stand still."""
_BODY_S = 600.0
"""The longest that it may take."""
_TRIES, _PER_S = 10, 60.0
"""Failed logins of an address in so many seconds."""
_ADDRESSES = 10_000

_BURST, _STEADY = 300.0, 50.0
"""Requests that a caller may make at once, and a second."""

FindCaller = Callable[[str], Caller | None]
"""Finds the caller of a token or of a session's subject; None: there is none, or it is revoked."""


class FailedLogins:
    """Counts failed logins by address, and says when there were too many."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Seconds until this address may try again; 0: now."""
        now_s = time.monotonic()
        recent = [at_s for at_s in self._failed.get(address, ()) if at_s > now_s - _PER_S]
        return recent[-_TRIES] + _PER_S - now_s if len(recent) >= _TRIES else 0.0

    def note(self, address: str) -> None:
        """Another one has failed."""
        self._failed[address] = [*self._failed.pop(address, [])[-_TRIES:], time.monotonic()]
        if len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)


class RequestRate:
    """Says which callers ask too often."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """Caller → what it has left, and when that was so."""

    def is_too_high(self, caller: str) -> bool:
        """Count a request."""
        now_s = time.monotonic()
        left, at_s = self._left.get(caller, (_BURST, now_s))
        left = min(_BURST, left + (now_s - at_s) * _STEADY)
        self._left[caller] = max(0.0, left - 1.0), now_s
        return left < 1.0


class Guard:
    """The outermost layer of the service."""

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions,
        of_subject: FindCaller,
        of_token: FindCaller,
        failed: FailedLogins,
        hosts: Collection[str] = (),
    ) -> None:
        """`hosts`: names beside those of this machine under which the service is reached."""
        self._app = app
        self._sessions = sessions
        self._of_subject = of_subject
        self._of_token = of_token
        self._failed = failed
        self._rate = RequestRate()
        self._hosts = frozenset((*LOOPBACK, *(host.lower() for host in hosts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        refusal = self._refusal(asked)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                fresh = [] if b"cache-control" in given else [_FRESH]
                message["headers"] = [*message["headers"], *_HEADERS, *fresh]
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, _limited(receive, _limit(asked.url.path)), send_with_headers)

    def _refusal(self, asked: HTTPConnection) -> Response | None:
        """The answer to a request that may not pass; None: it may."""
        host = re.sub(r":\d+$", "", asked.headers.get("host", "")).lower()
        if host not in self._hosts:
            return problem(
                421, f"this service is not {host[:80]!r}: ask for it by its own name, or start it with --host-name"
            )
        if int(re.sub(r"\D", "", asked.headers.get("content-length", "")) or 0) > _limit(asked.url.path):
            return problem(413, "the body is too large")
        is_public = _PUBLIC.fullmatch(asked.url.path) is not None
        caller, why = self._caller(asked)
        asked.scope.setdefault("state", {})["caller"] = caller
        if caller is None or is_public:
            return None if is_public else why
        if caller.role is Role.WORKER and not _OF_WORKERS.fullmatch(asked.scope["path"]):
            return problem(403, f"{caller.name} may only train for pools: this token is of the role worker")
        if self._rate.is_too_high(caller.name):
            return problem(429, f"{caller.name} asks too often: {_STEADY:g} requests a second are answered")
        if asked.scope["method"] in _SAFE or not caller.csrf:
            return None
        if asked.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return problem(403, "this form was sent by another site: use the page of this service")
        # A form brings the token in its body, where vcdl.web.pages looks; whatever else does, in a header.
        given = asked.headers.get("x-csrf-token", "")
        is_form = asked.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        if asked.url.path.startswith("/api/") or not is_form:
            return None if is_same(given, caller.csrf) else problem(403, "the header X-CSRF-Token is missing or wrong")
        return None

    def _caller(self, asked: HTTPConnection) -> tuple[Caller | None, Response]:
        """The caller, and the answer to an unknown one."""
        address = asked.client.host if asked.client else ""
        given = asked.headers.get("authorization", "")
        if given:
            if (wait_s := self._failed.wait_s(address)) > 0:
                return None, too_many(wait_s)
            caller = self._of_token(given.removeprefix("Bearer ").strip())
            if caller is None:
                self._failed.note(address)
            return caller, problem(401, "this token is unknown, expired or revoked: ask the operator for another")
        cookie = asked.cookies.get(COOKIE, "")
        subject = self._sessions.subject(cookie) if cookie else None
        caller = None if subject is None else self._of_subject(subject)
        if caller is not None:
            return replace(caller, csrf=self._sessions.csrf(cookie)), Response()
        path = asked.url.path
        if path.startswith("/api/") or path == "/metrics":
            return None, problem(401, "a token is needed: `Authorization: Bearer vcdl_…`, as `vcdl login` keeps one")
        return None, RedirectResponse(f"/login?next={quote(path)}", 303)


def too_many(wait_s: float) -> Response:
    """The answer to an address with too many failed logins."""
    refused = problem(429, f"too many failed logins: wait {wait_s:.0f} s")
    refused.headers["retry-after"] = f"{wait_s + 1:.0f}"
    return refused


def _limit(path: str) -> int:
    """The largest body that is taken at a path."""
    return CHUNK_BYTES if path.startswith("/api/v1/chunks/") else _MOST_BYTES


def _limited(receive: Receive, most: int) -> Receive:
    """A body that is larger than it said, or stands still, ends the connection."""
    got, is_whole, end_s = 0, False, time.monotonic() + _BODY_S

    async def limited() -> Message:
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

    return limited
