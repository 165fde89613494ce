"""The free slots of simulated clients, in the order in which they became free, without a search through all.

Clients come and go while their slots are free. The next change of each free slot is in a heap: for slots of clients
that are present the start of their next absence, for slots of absent clients its end. Each query first applies the
changes until its moment.
"""

import heapq
from bisect import bisect_left, insort
from itertools import count

from vcdl.simulate.clients import Clients


class IdleSlots:
    """The free slots of all clients, each with a number; a slot that became free later has a higher one.

    Pass virtual times in ascending order, because absences are applied up to the time of each call.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._numbers = count()
        self._here: list[tuple[int, int]] = []
        """Number and client of the free slots of present clients, in order."""
        self._leaving: list[tuple[float, int, int]] = []
        """Start of the next absence with number and client, for these slots. Entries of slots that were taken since are
        skipped."""
        self._away: list[tuple[float, int, int]] = []
        """End of the absence with number and client, for each free slot of an absent client."""

    def add(self, client: int, now_s: float) -> None:
        """Add a slot of a client that has just become free."""
        self._place(next(self._numbers), client, now_s)

    def here(self, now_s: float) -> list[tuple[int, int]]:
        """Return number and client of each free slot whose client is present, the longest free first.

        The list is the internal one: do not change it, and do not keep it over other calls.
        """
        while self._leaving and self._leaving[0][0] <= now_s:
            _, number, client = heapq.heappop(self._leaving)
            # Slots that were taken stay in the heap: removing them there would be a search through all of it.
            if self._is_here(number):
                self.take(number)
                self._place(number, client, now_s)
        while self._away and self._away[0][0] <= now_s:
            _, number, client = heapq.heappop(self._away)
            self._place(number, client, now_s)
        return self._here

    def away(self, now_s: float) -> int:
        """Return the number of free slots of absent clients."""
        # `here` applies the changes until now, without which both heaps are out of date.
        self.here(now_s)
        return len(self._away)

    def take(self, number: int) -> None:
        """Remove a slot that `here` returned, because it gets a subtask."""
        del self._here[bisect_left(self._here, (number,))]

    def next_back_s(self, now_s: float) -> float | None:
        """Return when the first absent client with a free slot returns, or None if there is none."""
        self.here(now_s)
        return self._away[0][0] if self._away else None

    def _is_here(self, number: int) -> bool:
        """Return whether a slot is free and its client present."""
        place = bisect_left(self._here, (number,))
        return place < len(self._here) and self._here[place][0] == number

    def _place(self, number: int, client: int, now_s: float) -> None:
        """Add a free slot to those of present or of absent clients."""
        absence = self._clients.next_absence(client, now_s)
        if absence.begin_s <= now_s:
            heapq.heappush(self._away, (absence.end_s, number, client))
        else:
            insort(self._here, (number, client))
            heapq.heappush(self._leaving, (absence.begin_s, number, client))
