"""Announce to pilots who drives the run, with a heartbeat, and stop if another process drives it, too."""

import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from vcdl.errors import GridError
from vcdl.pool.mailboxes import PoolFolder
from vcdl.pool.messages import Driver

_BEAT_S = 2.0  # seconds between two heartbeats of the run, so that pilots may miss many of them
_SHORTEST_LOOK_S = 0.1  # seconds between two looks of a pilot into its mailbox, so as not to overload a file server
_LOOKS_PER_S = 1000.0
"""Most looks per second of all waiting pilots together, so that they do not overload a file server."""


class Announcer:
    """Writes what this process announces as the driver of a run. All calls raise OSError."""

    def __init__(self, pool: PoolFolder, clock: Callable[[], float], *, lease_s: float, brings_code: bool) -> None:
        """Prepare the announcement; nothing is written yet.

        Args:
            pool: The pool's folder.
            clock: Returns seconds.
            lease_s: Seconds without a heartbeat after which a pilot counts as gone.
            brings_code: Whether the job has code of its own.
        """
        self._pool = pool
        self._clock = clock
        self._driver = Driver(
            id=secrets.token_hex(8), machine=socket.gethostname(), pid=os.getpid(), beat=0, state="running",
            lease_s=lease_s, look_s=_SHORTEST_LOOK_S, brings_code=brings_code,
        )  # fmt: skip
        self._beaten_s = -math.inf

    def refuse_another(self) -> None:
        """Check that no process on another machine drives the run; on this machine the run's own lock ensures that.

        If the last process was on another machine and never announced its end, this waits for some seconds for a
        heartbeat.

        Raises:
            GridError: The other process still sends heartbeats.
        """
        seen = self._pool.read_driver()
        if seen is None or seen.state != "running" or seen.machine == self._driver.machine:
            return
        until_s = self._clock() + 3 * _BEAT_S
        while self._clock() < until_s:
            time.sleep(_BEAT_S / 4)
            now = self._pool.read_driver()
            if now is not None and now.beat != seen.beat:
                raise GridError(
                    f"{self._pool.where} is driven by process {now.pid} on {now.machine}: end it there, or wait for it"
                )

    def beat(self, pilots: int, *, at_once: bool = False) -> None:
        """Send a heartbeat if it is due.

        Args:
            pilots: Number of pilots; with many of them each looks less often into its mailbox.
            at_once: Send it in any case, and replace the announcement of another process.

        Raises:
            GridError: Another process drives the run now.
        """
        now_s = self._clock()
        if not at_once and now_s - self._beaten_s < _BEAT_S:
            return
        self._beaten_s = now_s
        seen = self._pool.read_driver()
        if not at_once and seen is not None and seen.id != self._driver.id:
            raise GridError(
                f"process {seen.pid} on {seen.machine} drives {self._pool.where} now: this one stops; nothing is lost"
            )
        self.say(beat=self._driver.beat + 1, look_s=max(_SHORTEST_LOOK_S, pilots / _LOOKS_PER_S))

    def say(self, **changes: Any) -> None:
        """Announce changed fields of `Driver`."""
        self._driver = msgspec.structs.replace(self._driver, **changes)
        self._pool.write_driver(self._driver)
