"""A grid whose clients exist in virtual time: what they make of their subtasks arrives by the clock.

Where subtasks are trained for real, the grid waits for a training only when the clock has come to its upload. So the
order of all events follows from the seed, and a run repeats bit for bit, whatever else the machine does.
"""

import heapq
from collections import Counter, deque
from collections.abc import Collection, Sequence
from functools import partial

from vcdl.journal.events import WorkunitSent
from vcdl.loop.grid import GaveUp, Grid, Outcome, Results, Staged
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.client_work import ClientWork
from vcdl.simulate.clients import Clients, SubtaskOutcome
from vcdl.simulate.slot_times import SlotTimes
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.workunit import WorkunitName

LOSSES = 3
"""Losses after which the grid gives a workunit up, as on a BOINC server (`max_error_results` of templates/vcdl_in.xml
and one): until then it is handed to the next client, from the same weights.
"""


class VirtualGrid(Grid, Results):
    """The simulated clients, and the parameter servers that their uploads wait for."""

    def __init__(
        self,
        fleet: ClientFleet,
        time: VirtualTime,
        work: ClientWork,
        queue_ahead: int = 0,
    ) -> None:
        """`queue_ahead`: subtasks kept ready beyond those in training."""
        self._fleet = fleet
        self._time = time
        self._work = work
        self._queue_ahead = queue_ahead
        self._clients = Clients(fleet)
        self._idle = deque(client for _ in range(fleet.slots) for client in range(fleet.clients))
        """The client of each free slot; the slot that has waited longest is first."""
        self._servers_free_s = [0.0] * fleet.servers
        self._known: dict[str, Staged] = {}
        self._waiting: deque[str] = deque()
        self._losses: Counter[str] = Counter()
        """How often each workunit was lost."""
        self._outcomes: dict[str, Outcome] = {}
        self._sent: list[WorkunitSent] = []
        self.times = SlotTimes()

    # -- the contracts of a grid and of its results

    def submit(self, staged: Sequence[Staged]) -> None:
        for item in staged:
            name = item.workunit.name
            if name not in self._known:
                self._known[name] = item
                self._waiting.append(name)
        self._hand_out()

    def has(self, workunit: str) -> bool:
        return workunit in self._known

    def sent(self) -> list[WorkunitSent]:
        sent, self._sent = self._sent, []
        return sent

    def claim(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def done(self, workunit: str, version: int | None = None) -> None:
        self._outcomes.pop(workunit, None)
        self._known.pop(workunit, None)
        self._work.done(workunit, version)

    def cancel(self, workunits: Collection[str]) -> None:
        """Drop the workunits. A client that trains one is not told, and stays busy until the end of its training."""
        self._work.cancel(workunits)
        for workunit in workunits:
            self._outcomes.pop(workunit, None)
            self._known.pop(workunit, None)
        self._waiting = deque(workunit for workunit in self._waiting if workunit in self._known)

    def open_wanted(self) -> int:
        """The open workunits (including lost ones that the server has not heard of), and one for each free slot."""
        return len(self._known) - len(self._waiting) + len(self._idle) + self._queue_ahead

    # -- events of the clock

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._begin(self._known[self._waiting.popleft()], self._idle.popleft())

    def _begin(self, staged: Staged, client: int) -> None:
        workunit = staged.workunit.name
        name, losses = WorkunitName.parse(workunit), self._losses[workunit]
        planned = self._clients.outcome(client, name, self._time.now_s(), losses)
        self._sent.append(WorkunitSent(workunit, self._clients.host(client), self._work.bytes_down(staged, client)))
        self.times.began(self._time.now_s(), planned)
        self._time.at(planned.slot_free_s, partial(self._is_free, client))
        if planned.lost is not None:
            self._time.at(planned.heard_of_s, partial(self._is_lost, GaveUp(workunit, planned.lost)))
            return
        self._work.begin(staged, client, planned.heard_of_s)
        self._time.at(planned.heard_of_s, partial(self._has_come, workunit, client, planned))

    def _is_free(self, client: int) -> None:
        self._idle.append(client)
        self._hand_out()

    def _is_lost(self, outcome: GaveUp) -> None:
        workunit = outcome.workunit
        if workunit not in self._known:
            return
        self._losses[workunit] += 1
        if self._losses[workunit] < LOSSES:
            self._waiting.append(workunit)
            self._hand_out()
        else:
            self._outcomes[workunit] = outcome

    def _has_come(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        """The upload waits for a server, and is folded in when the server has finished with it."""
        begin_s = max(self._time.now_s(), heapq.heappop(self._servers_free_s))
        self.times.waits_s.append(begin_s - self._time.now_s())
        heapq.heappush(self._servers_free_s, begin_s + self._fleet.update_s)
        self._time.at(begin_s + self._fleet.update_s, partial(self._is_served, workunit, client, planned))

    def _is_served(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        staged = self._known.get(workunit)
        if staged is None:
            return
        self._outcomes[workunit] = self._work.upload(staged, client, planned.train_s)
