"""Show a job of a service until it ends or pauses. The service computes the figures and sentences that are shown."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from vcdl.errors import GridUnavailable, VcdlError, printable
from vcdl.remote.service_client import ServiceClient

if TYPE_CHECKING:
    from rich.table import Table

_EVERY_S = 1.0
"""Seconds between two requests for the job's state, so that each client costs the service little."""
_AWAY_S = 600.0
"""Seconds for which a service may be unreachable before `follow` gives up, so that an upgrade does not end it."""
OVER = ("finished", "failed", "paused", "killed")

Show = Callable[[dict[str, Any], list[str]], None]
"""Shows a job: called with the job's fields, as the service returns them, and the new lines of its feed."""


def follow(client: ServiceClient, name: str, stream: IO[str] | None, timeout_s: float = math.inf) -> dict[str, Any]:
    """Show a job until it has ended or paused, and return its fields.

    Args:
        client: The service.
        name: The job.
        stream: Where to show the job, a terminal or a file; None to show nothing and only wait.
        timeout_s: Most seconds to wait.

    Raises:
        VcdlError: The job was given up, or the service stays unreachable.
        TimeoutError: The job has not ended in time.
    """
    end_s, said, state = time.monotonic() + timeout_s, set[tuple[float, str]](), ""
    with _screen(f"{name} on {client.name}", stream) as show:
        while True:
            job = _present(client, name)
            feed = [(line["time_s"], line["words"]) for line in job.get("feed", ())]
            is_old = not state and job["state"] != "beginning"  # show no lines from before this call
            show(job, [] if is_old else [words for time_s, words in feed if (time_s, words) not in said])
            said, state = {*said, *feed}, job["state"]
            if state == "failed":
                why = f"{name} was given up: `vcdl status {name} --server {client.name}`"
                raise VcdlError(str(job.get("error") or why))
            if state in OVER:
                return job
            # Check the time after the state, so that a job that has just ended is not reported as a time-out.
            if time.monotonic() >= end_s:
                raise TimeoutError(f"{name} is {state} after {timeout_s:g} s; it continues")
            time.sleep(_EVERY_S)


def _present(client: ServiceClient, name: str) -> dict[str, Any]:
    """Return the fields of a job, retrying for `_AWAY_S` seconds while the service is unreachable."""
    end_s = time.monotonic() + _AWAY_S
    while True:
        try:
            return client.job(name)
        # Do not sleep here: the client itself waits between its attempts.
        except GridUnavailable:
            if time.monotonic() >= end_s:
                raise


@contextmanager
def _screen(title: str, stream: IO[str] | None) -> Iterator[Show]:
    if stream is None:
        yield lambda _job, _lines: None
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False)
    if console.is_terminal and not console.is_dumb_terminal:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:

            def redraw(job: dict[str, Any], lines: list[str]) -> None:
                for line in lines:
                    console.print(printable(line))
                live.update(_table(title, job), refresh=True)

            yield redraw
        return
    state = ""

    def say(job: dict[str, Any], lines: list[str]) -> None:
        nonlocal state
        if job["state"] != state:
            state = job["state"]
            lines = [*lines, f"{title}: {state}"]
        for line in lines:
            print(printable(line), file=stream, flush=True)

    yield say


def _table(title: str, job: dict[str, Any]) -> "Table":
    from rich.table import Table

    whole, figures = Table.grid(), Table.grid(padding=(0, 2))
    figures.add_column(style="bold", no_wrap=True)
    figures.add_column()
    for label, words in job.get("figures", {}).items():
        figures.add_row(printable(label), printable(str(words)))
    whole.add_row(printable(f"{title}: {job['state']}"))
    whole.add_row(figures)
    return whole
