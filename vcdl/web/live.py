"""Keep open pages up to date by server-sent events; each page is rendered once a second for all its watchers."""

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
"""Fewest seconds between two renderings of a page, and so between two messages to a browser."""
_AT_EVERY_S = 100
"""Watchers of a page up to which it is rendered every EVERY_S seconds; with n times as many, n times less often, so
that the messages per second stay bounded."""
_PING_S = 15.0
"""Seconds after which a stream without news sends a comment, so that a lost reader is noticed."""
_VALID_FOR_S = 10.0
"""Seconds between two checks of a reader's token, so that a revoked one soon sees nothing."""
MOST_WATCHERS = 500
"""Most simultaneous streams, since each holds a connection."""

Parts = Mapping[str, str]
"""Id of each element of a page that changes → its HTML."""


def sse(event: str, data: str, row: int | None = None) -> bytes:
    """Return the bytes of one server-sent event.

    Args:
        event: The kind of event.
        data: Its content; lines are sent as several `data` fields.
        row: Its id, which a browser that reconnects sends back; None for an event without an id.
    """
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    number = "" if row is None else f"id: {row}\n"
    return f"{number}event: {event}\n{lines}\n".encode()


async def while_valid(messages: AsyncGenerator[bytes, None], is_valid: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the messages of a stream, and end it at most some seconds after its reader's token has become invalid.

    Without this a revoked token could read on for as long as the stream is open, because only requests are checked.

    Args:
        messages: The stream, which is closed at the end.
        is_valid: Returns whether the reader's token is still valid; called in a thread, every `_VALID_FOR_S` seconds at
            most.
    """
    looked_s = time.monotonic()
    # Close the stream as soon as this generator ends, so that `follow` frees the watcher's place.
    async with aclosing(messages):
        async for message in messages:
            if time.monotonic() >= looked_s + _VALID_FOR_S:
                looked_s = time.monotonic()
                if not await asyncio.to_thread(is_valid):
                    return
            yield message


@dataclass
class _Page:
    """A page with watchers: its last rendering, and the task that renews it."""

    render: Callable[[], Parts]
    parts: Parts = field(default_factory=dict)
    version: int = 0
    whole: bytes = b""
    """Message with all parts."""
    delta: bytes = b""
    """Message with the parts that the last version changed."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next version is ready; a new event for the version after it then takes its place."""
    watchers: int = 0
    task: asyncio.Task[None] | None = None


class LivePages:
    """Renders each page that browsers watch, for all its watchers together.

    The first watcher of a page starts a task that renders it regularly, and the last one ends the task. Use it only in
    the event loop: nothing is locked.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def parts(self, key: str) -> Parts:
        """Return the parts of a page as last rendered for its watchers; empty without watchers or after a failure."""
        parts = self._pages[key].parts if key in self._pages else {}
        return {} if parts.get("live-error") else parts

    @property
    def watchers(self) -> int:
        """Number of watchers of all pages."""
        return sum(page.watchers for page in self._pages.values())

    async def follow(self, key: str, render: Callable[[], Parts]) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events with the parts of a page: first all of them, then those that have changed.

        The part `live-error` is the reason if the page cannot be rendered, otherwise empty. The generator never ends;
        closing it gives up the watcher's place.

        Args:
            key: Address of the page; watchers with the same key share its rendering.
            render: Renders all parts; called in a thread, about once a second.
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
