"""Drives many simulated hosts with few threads: each host's next step when it is due."""

import heapq
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.boinc_load.simulated_host import SimulatedHost

_THREADS = 32
"""Requests at once: fewer than the places of a web server, so that none is refused for that."""
_TOLD_EVERY_S = 15.0
_AFTER_A_BUG_S = 60.0


class Driver:
    """Steps of all hosts, each when it is due, some at once."""

    def __init__(self, hosts: Sequence[SimulatedHost], ramp_s: float) -> None:
        self._hosts = hosts
        self._due = [(time.monotonic() + ramp_s * number / len(hosts), number) for number in range(len(hosts))]
        self._done: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_THREADS, "host")
        self._out = 0

    def run(self, seconds: float, tell: Callable[[], None], until: Callable[[], bool] = lambda: False) -> None:
        """Drive the hosts for so long, or until something holds."""
        end_s = time.monotonic() + seconds
        told_s = time.monotonic()
        while (now_s := time.monotonic()) < end_s and not until():
            while self._due and self._due[0][0] <= now_s:
                _, number = heapq.heappop(self._due)
                self._out += 1
                self._pool.submit(self._step, number)
            next_s = self._due[0][0] if self._due else end_s
            try:
                done = self._done.get(timeout=max(0.0, min(next_s, end_s, now_s + 1.0) - time.monotonic()))
                self._out -= 1
                heapq.heappush(self._due, done)
            except queue.Empty:
                pass
            if now_s - told_s > _TOLD_EVERY_S:
                told_s = now_s
                tell()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _step(self, number: int) -> None:
        wait_s = _AFTER_A_BUG_S
        try:
            wait_s = self._hosts[number].step()
        finally:
            self._done.put((time.monotonic() + wait_s, number))
