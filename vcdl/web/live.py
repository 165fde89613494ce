"""Keep parts of a page up to date by server-sent events; a page is rendered once for all its watchers."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from markupsafe import escape

from vcdl.errors import VcdlError

_log = logging.getLogger("vcdl.web")
EVERY_S = 1.0
"""Seconds between two renderings, and so between two messages to a browser, at least."""
_AT_EVERY_S = 100
"""Watchers of a page that are updated in each round, at most; with more, each is updated less often."""
_PING_S = 15.0
"""Seconds after which a stream without news sends a comment, so that a lost reader is noticed."""
_VALID_FOR_S = 10.0
"""Seconds between two checks of a reader's token, so that a revoked one soon sees nothing."""
MOST_WATCHERS = 500
"""Most simultaneous streams, since each holds a connection."""

Parts = Mapping[str, str]
"""HTML of the parts of a page, by the id of the element that contains it."""


def sse(event: str, data: str, row: int | None = None) -> bytes:
    """Return one server-sent event; `row` is its id."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    number = "" if row is None else f"id: {row}\n"
    return f"{number}event: {event}\n{lines}\n".encode()


async def while_valid(messages: AsyncGenerator[bytes, None], is_valid: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the messages of a stream until its reader's token has ended, which no later request would check."""
    looked_s = time.monotonic()
    # Close it immediately when the reader's token ends, so that `follow` frees its place.
    async with aclosing(messages):
        async for message in messages:
            if time.monotonic() >= looked_s + _VALID_FOR_S:
                looked_s = time.monotonic()
                if not await asyncio.to_thread(is_valid):
                    return
            yield message


@dataclass
class _Page:
    """One page with watchers."""

    render: Callable[[], Parts]
    parts: Parts = field(default_factory=dict)
    version: int = 0
    whole: bytes = b""
    """Message with all parts."""
    delta: bytes = b""
    """Message with the parts that the last version changed."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next version is ready, which then has its own event."""
    watchers: int = 0
    task: asyncio.Task[None] | None = None


class LivePages:
    """The pages that have watchers."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def parts(self, key: str) -> Parts:
        """Return the parts of a page as last rendered for its watchers; none without watchers or after a failure."""
        parts = self._pages[key].parts if key in self._pages else {}
        return {} if parts.get("live-error") else parts

    @property
    def watchers(self) -> int:
        """Number of watchers of all pages."""
        return sum(page.watchers for page in self._pages.values())

    async def follow(self, key: str, render: Callable[[], Parts]) -> AsyncGenerator[bytes, None]:
        """Yield messages with the parts of a page: first all of them, then those that change.

        Args:
            key: Names the page; watchers with the same key share its rendering.
            render: Renders the parts.
        """
        page = self._pages.setdefault(key, _Page(render))
        page.watchers += 1
        try:
            if page.task is None:
                page.task = asyncio.create_task(self._keep_up(page))
            seen = 0
            while True:
                if page.version == seen:
                    try:
                        async with asyncio.timeout(_PING_S):  # ⚠ wait_for of Python 3.11 can swallow a cancellation
                            await page.changed.wait()
                    except TimeoutError:
                        yield b": still here\n\n"
                        continue
                # A slow watcher that missed a version gets all parts: a delta would leave old parts on the page.
                message = page.delta if seen and page.version == seen + 1 else page.whole
                seen = page.version
                yield message
        finally:
            page.watchers -= 1
            if not page.watchers:
                # Another page of the same key may have been opened meanwhile.
                if self._pages.get(key) is page:
                    del self._pages[key]
                if page.task is not None:
                    page.task.cancel()

    async def _keep_up(self, page: _Page) -> None:
        while True:
            try:
                parts = {"live-error": "", **await asyncio.to_thread(page.render)}
            except VcdlError as error:
                # The last parts stay on the page below the error: old figures are better than none.
                parts = {**page.parts, "live-error": str(escape(str(error)))}
            except Exception:
                _log.exception("a page cannot be kept up to date")
                parts = {**page.parts, "live-error": "this page is no longer updated: see the log of the service"}
            changed = {name: html for name, html in parts.items() if page.parts.get(name) != html}
            if changed or not page.version:
                page.parts, page.version = parts, page.version + 1
                page.whole, page.delta = sse("parts", json.dumps(dict(parts))), sse("parts", json.dumps(changed))
                page.changed.set()
                # A new event for the next version: clearing the same one would lose watchers that have not woken up
                # yet.
                page.changed = asyncio.Event()
            await asyncio.sleep(EVERY_S * max(1.0, page.watchers / _AT_EVERY_S))
