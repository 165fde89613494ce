"""Cache answers for one second.

Many clients may follow the same job, whose answers change with each upload. Without the cache the same answer would be
computed for each client; a longer one would show old figures.
"""

import re
import time
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcdl.web.live import EVERY_S

_SHARED = re.compile(r"/api/v1/jobs(/[^/]+(/events)?)?")
"""Paths whose answers are the same for every caller who may request them."""
_CHANGING = re.compile(r"/(api/v1/)?(jobs|hosts|commands)(/.*)?")
"""Paths below which a request other than GET may change a job."""
_MOST_BYTES = 1 << 18
"""Most bytes of a cached answer."""
_MOST = 64
"""Most cached answers, so that memory stays bounded; the oldest is dropped first."""


@dataclass(slots=True)
class _Answer:
    asked_s: float
    """Monotonic time of the request for which the answer was computed; the answer is at least as new."""
    messages: list[Message] = field(default_factory=list)
    """ASGI messages of the answer: first its status and headers, then its body."""
    size_bytes: int = 0


class RecentAnswers:
    """An ASGI layer that caches answers about jobs for a second, and forgets them all when a request changes a job.

    It must come after all checks of a request, because the caller is not part of a cached answer's key. It runs in the
    event loop only, so nothing is locked.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._answers: dict[tuple[str, bytes], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "GET" and _SHARED.fullmatch(scope["path"]):
            await self._answer(scope, receive, send)
        elif scope["method"] == "POST" and _CHANGING.fullmatch(scope["path"]):
            try:
                await self._app(scope, receive, send)
            finally:
                # Forget all answers, so that a caller who stops a job then sees it stopping. Answers that are being
                # computed are not kept either: see `_keeping`.
                self._answers = {}
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = scope["path"], scope["query_string"]
        # The caller is not part of the key: permissions were checked before this layer, and all callers get the same
        # answer.
        known = self._answers.get(key)
        if known is None or time.monotonic() >= known.asked_s + EVERY_S:
            await self._app(scope, receive, self._keeping(key, send))
            return
        for message in known.messages:
            await send(message)

    def _keeping(self, key: tuple[str, bytes], send: Send) -> Send:
        """Wrap `send` so that the answer is cached if it is complete, successful and not too large."""
        # Keep a reference to the current dict: a change replaces it, so an answer that is then in progress goes into
        # the old dict and is never reused.
        answers, answer = self._answers, _Answer(time.monotonic())

        async def keep(message: Message) -> None:
            answer.messages.append(message)
            answer.size_bytes += len(message.get("body", b""))
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
            if is_whole and answer.messages[0]["status"] == 200 and answer.size_bytes <= _MOST_BYTES:
                answers[key] = answer
                if len(answers) > _MOST:
                    del answers[next(iter(answers))]
            await send(message)

        return keep
