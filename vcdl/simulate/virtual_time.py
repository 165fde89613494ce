"""A clock that stands still between events, with the queue of its events."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualTime:
    """A clock in seconds since the simulation's start, which moves only from event to event.

    Events of the same time happen in the order in which they were registered.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        self._announced: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def now_s(self) -> float:
        """Return the virtual time."""
        return self._now_s

    def at(self, time_s: float, happen: Callable[[], None]) -> None:
        """Register a function to be called once at a virtual time; a time in the past means now."""
        # The number orders events of one moment by registration, so that a run repeats bit for bit.
        heapq.heappush(self._announced, (max(time_s, self._now_s), next(self._numbers), happen))

    def advance(self, limit_s: float) -> bool:
        """Move the clock to the next event, or to `limit_s` if that is earlier, and run the events of that time.

        Returns:
            False, without moving, if no event is registered.
        """
        if not self._announced:
            return False
        self._now_s = max(self._now_s, min(self._announced[0][0], limit_s))
        # Run all events of the same time before the caller's loop, which then acts once on all of them.
        while self._announced and self._announced[0][0] <= self._now_s:
            heapq.heappop(self._announced)[2]()
        return True
