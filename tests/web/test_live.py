"""The messages of a page that many watch."""

import asyncio
import itertools

from vcdl.web.live import LivePages


def test_watchers_that_leave_while_a_version_comes_leave_no_error() -> None:
    assert asyncio.run(_errors_of_those_who_leave()) == []


async def _errors_of_those_who_leave() -> list[BaseException]:
    pages, versions = LivePages(), itertools.count()

    async def watch() -> None:
        async for _ in pages.follow("page", lambda: {"part": str(next(versions))}):
            pass

    watchers = [asyncio.create_task(watch()) for _ in range(20)]
    while not pages.parts("page"):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)  # all wait for the next version
    (page,) = pages._pages.values()
    changed, page.changed = page.changed, asyncio.Event()
    changed.set()
    await asyncio.sleep(0)  # they are about to wake
    for watcher in watchers:
        watcher.cancel()
    ended = await asyncio.wait_for(asyncio.gather(*watchers, return_exceptions=True), 30)
    return [one for one in ended if one is not None and not isinstance(one, asyncio.CancelledError)]
