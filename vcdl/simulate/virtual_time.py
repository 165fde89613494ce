"""A clock that stands still between events, with the queue of its events."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualTime:
    """Seconds since the simulation's start, and a queue of events, ordered by time and then by registration."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._announced: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def now_s(self) -> float:
        return self._now_s

    def at(self, time_s: float, happen: Callable[[], None]) -> None:
        """Register an event; a time in the past means now."""
        # The number orders events of one moment by registration, so that a run repeats bit for bit.
        heapq.heappush(self._announced, (max(time_s, self._now_s), next(self._numbers), happen))

    def advance(self, limit_s: float) -> bool:
        """Move to the next event, or to `limit_s` if earlier, and run that moment's events; False: there is none."""
        if not self._announced:
            return False
        self._now_s = max(self._now_s, min(self._announced[0][0], limit_s))
        # All events of a moment before the loop runs: it then acts once on everything that happened.
        while self._announced and self._announced[0][0] <= self._now_s:
            heapq.heappop(self._announced)[2]()
        return True
