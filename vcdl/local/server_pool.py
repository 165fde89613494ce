"""The parameter servers of a local run: as many processes as the job asks for, or as the backlog asks for."""

import os
from collections.abc import Sequence
from typing import Self

from vcdl.journal.events import Recorded, UpdateApplied
from vcdl.local.child import ChildProcess
from vcdl.local.server_scaling import ServerScaling
from vcdl.run.folder import RunFolder

_MODULE = "vcdl.local.server"
_DRAIN_S = 1.0
"""A longer backlog makes weights stale: another server is worth its process."""
_SMOOTHING = 0.1
"""Smoothing of the measured service time: an average over some ten updates."""
_FIRST_GUESS_S = 0.05


class ServerPool:
    """Starts and ends servers while the job runs; any may be ended, as they own nothing."""

    def __init__(self, folder: RunFolder, scaling: ServerScaling | None) -> None:
        """`scaling` None: no server is ever started."""
        self._folder = folder
        self._scaling = scaling
        self._servers: list[ChildProcess] = []
        self._service_s = _FIRST_GUESS_S
        self._last_s: float | None = None

    @classmethod
    def of(cls, folder: RunFolder, servers: int | str) -> Self:
        """The pool of a run with `grid > servers`: empty for 1, the run's own process, and for 0, `vcdl
        assimilator`.
        """
        if servers in (0, 1):
            return cls(folder, None)
        return cls.between(folder, *(automatic_bounds() if isinstance(servers, str) else (servers, servers)))

    @classmethod
    def between(cls, folder: RunFolder, least: int, most: int) -> Self:
        """A pool that follows the load."""
        return cls(folder, ServerScaling(least, most, _DRAIN_S))

    @property
    def running(self) -> int:
        """Servers at work now."""
        return len(self._servers)

    def look(self, new: Sequence[Recorded], *, is_needed: bool = True) -> None:
        """Adapt to the load and start again what died; `new`: events since the last look.

        `is_needed`: whether updates are still to come. A dead server ends a run only then. Raises GridError.
        """
        if self._scaling is None:
            return
        applied = [recorded.time_s for recorded in new if isinstance(recorded.event, UpdateApplied)]
        backlog = len(self._folder.waiting_uploads())
        self._measure(applied, backlog)
        wanted = self._scaling.look(backlog, self._service_s)
        while len(self._servers) < wanted:
            self._servers.append(ChildProcess(_MODULE, self._folder))
        while len(self._servers) > wanted:
            self._servers.pop().close()
        for server in self._servers:
            if not (is_needed or backlog):
                server.try_anew()
                continue
            server.watch(bool(applied))
            if server.is_hopeless:
                raise server.hopeless()

    def close(self) -> None:
        """End all servers."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _measure(self, applied_s: Sequence[float], backlog: int) -> None:
        """Measure the seconds per update, from updates that came in a row while others waited."""
        for time_s in applied_s:
            if self._last_s is not None and backlog > 0:
                took_s = max(0.0, time_s - self._last_s) * max(1, len(self._servers))
                self._service_s += _SMOOTHING * (took_s - self._service_s)
            self._last_s = time_s


def automatic_bounds() -> tuple[int, int]:
    """Least and most servers of `auto`."""
    return 1, max(2, len(os.sched_getaffinity(0)))
