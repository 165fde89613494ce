"""A grid whose clients exist in virtual time: all events follow from the seed, and a run repeats bit for bit.

The outcome of a subtask on a client is drawn when the subtask starts (`Clients.outcome`), and becomes events of the
clock. Each method is one step:

    _begin       a client takes a workunit, starting from the newest published weights
    _is_trained  its upload joins the queue of its link, if links are simulated
    _has_come    the upload arrives, and waits for the parameter server that is free first
    _is_served   the upload is ready to be claimed
    _is_lost     instead of these three: the server learns of a loss, and the workunit goes to another client, until it
                 is given up after LOSSES
    _is_free     the slot can take another workunit

The training is ordered at the start and fetched when the upload is due (`ClientWork`). A late workunit may be trained
by a second client: the first upload counts, and a later one is dropped.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vcdl.job.schema import LATE_AFTER
from vcdl.journal.events import Event, WorkunitSent
from vcdl.loop.grid import GaveUp, Grid, Outcome, Results
from vcdl.loop.lateness import Out, Turnarounds, faster_hosts
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.client_work import ClientWork
from vcdl.simulate.clients import Clients, SubtaskOutcome
from vcdl.simulate.idle_slots import IdleSlots
from vcdl.simulate.slot_times import SlotTimes
from vcdl.simulate.suspended_hosts import SuspendedHosts
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.workunit import WorkunitName

LOSSES = 3
"""Losses after which the grid gives a workunit up, as on a BOINC server (`max_error_results`, and one)."""


class VirtualGrid(Grid, Results):
    """A grid of simulated clients, and the queue of their uploads for the simulated parameter servers.

    It changes only in its methods and in events of the virtual clock, so the same calls always give the same run.
    """

    def __init__(
        self,
        clients: Clients,
        time: VirtualTime,
        work: ClientWork,
        queue_ahead: int = 0,
        late_after: float = LATE_AFTER,
    ) -> None:
        """Create the grid.

        Args:
            clients: The clients and their behaviour.
            time: The virtual clock.
            work: Produces the clients' uploads.
            queue_ahead: Number of workunits to keep ready in addition to those in training.
            late_after: `pacing > late_after` (vcdl.loop.lateness).
        """
        self._clients = clients
        self._fleet = fleet = clients.fleet
        self._time = time
        self._work = work
        self._queue_ahead = queue_ahead
        self._idle = IdleSlots(clients)
        # First one slot of each client, then the second ones, so that work spreads over the clients as on a real grid.
        for _ in range(fleet.slots):
            for client in range(fleet.clients):
                self._idle.add(client, time.now_s())
        self._servers_free_s = [0.0] * fleet.servers
        self._links_free_s = [0.0] * fleet.clients
        """Moment at which each client's link is free again."""
        self._on_the_way: dict[str, Outcome] = {}
        """Workunit → its upload, while its client's link sends it."""
        self._known: dict[str, Staged] = {}
        self._waiting: deque[str] = deque()
        self._losses: Counter[str] = Counter()
        """Workunit → number of its losses."""
        self._out: dict[str, dict[int, float]] = {}
        """Workunit → client that is training it → virtual time at which the client started it."""
        self._had: dict[str, frozenset[str]] = {}
        """Workunit → the hosts that were ever given it."""
        self._begun_s: list[tuple[float, str]] = []
        """A heap of (virtual seconds, workunit): when a client last started each workunit; outdated entries are
        skipped."""
        self._copies: dict[str, None] = {}
        """Workunits that a further client should train, in order."""
        self._turnarounds = Turnarounds(late_after)
        self._wakes_s = -math.inf
        """The next moment at which the loop has to run."""
        self._back_s = 0.0
        """The next moment at which an absent client with a free slot is back."""
        self._suspended = SuspendedHosts(fleet.subtask_s)
        self._begun: dict[str, dict[int, Staged]] = {}
        """Workunit → the files that each client started from, which may be newer weights than another's."""
        self._trained: dict[str, int] = {}
        """Workunit → the client for which its training was ordered."""
        self._newest: tuple[int, Path] = (0, Path())
        """The newest published version, and its weights."""
        self._outcomes: dict[str, Outcome] = {}
        self._sent: list[WorkunitSent] = []
        self.times = SlotTimes()

    # -- the interfaces of a grid and of its results

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
        self._forget(workunit)
        self._work.done(workunit, version)

    def cancel(self, workunits: Collection[str]) -> None:
        """Drop workunits. A client that trains one does not learn of it, and stays busy until its end."""
        self._work.cancel(workunits)
        for workunit in workunits:
            self._outcomes.pop(workunit, None)
            self._forget(workunit)
        self._waiting = deque(workunit for workunit in self._waiting if workunit in self._known)

    def publish(self, version: int, params: Path) -> None:
        self._newest = version, params

    def target_open_workunits(self) -> int:
        """Return how many workunits should be open: those that clients have, one for each free slot, and a reserve.

        Workunits that were lost without a report count as well, because the server does not know of the loss.
        """
        return len(self._known) - len(self._waiting) + len(self._free()) + self._queue_ahead

    def slots(self) -> int:
        return self._fleet.all_slots - self._idle.away(self._time.now_s()) + self._queue_ahead

    def replicate_late(self, *, queue_empty: bool) -> None:
        lateness = self._turnarounds.lateness if self._fleet.second_copies else None
        if lateness is None:
            return
        now_s, after_s = self._time.now_s(), lateness.late_after_s(queue_empty=queue_empty)
        if (oldest_s := self._oldest_s()) is None:
            return
        # Nothing is late yet. The clock jumps from event to event, so an event is needed when the oldest becomes late.
        if now_s - oldest_s <= after_s:
            self._wake(now_s + max(1.0, after_s - (now_s - oldest_s)))
            return
        usual_s = self._turnarounds.usual_s(map(self._clients.host, range(self._fleet.clients)))
        out = [
            Out(workunit, now_s - max(self._out[workunit].values()), self._had[workunit])
            for workunit in self._out
            if self._is_out(workunit)
        ]
        late = lateness.late(out, queue_empty=queue_empty)
        self._copies |= dict.fromkeys(one.workunit for one in late if faster_hosts(one, usual_s))
        self._hand_out()
        late_ones = {one.workunit for one in late}
        ages_s = [one.age_s for one in out if one.workunit not in late_ones]
        if ages_s:
            self._wake(now_s + max(1.0, after_s - max(ages_s)))

    def _is_out(self, workunit: str) -> bool:
        """Return whether clients have a workunit that has no upload and does not wait for a further client."""
        has_clients = bool(self._out.get(workunit)) and workunit in self._known
        return has_clients and workunit not in self._outcomes and workunit not in self._copies

    def _oldest_s(self) -> float | None:
        """Return the earliest virtual time at which a workunit that is out (`_is_out`) was last started, or None."""
        while self._begun_s:
            begun_s, workunit = self._begun_s[0]
            if self._is_out(workunit) and max(self._out[workunit].values()) == begun_s:
                return begun_s
            heapq.heappop(self._begun_s)
        return None

    def suspend_hosts(self, events: Iterable[Event]) -> None:
        """Stop giving work to hosts whose uploads were refused repeatedly, for longer each time, and to banned hosts.

        Args:
            events: The journal's new events.
        """
        for until_s in self._suspended.follow(events, self._time.now_s()):
            self._time.at(until_s, self._hand_out)

    def _free(self) -> list[tuple[int, int]]:
        """Return number and client of each free slot whose client may work now, the longest free first.

        Such a client is present, and not suspended.
        """
        now_s = self._time.now_s()
        here = self._idle.here(now_s)
        if self._suspended.is_empty:
            return here
        return [slot for slot in here if not self._suspended.is_suspended(self._clients.host(slot[1]), now_s)]

    # -- events of the clock

    def _hand_out(self) -> None:
        """Give waiting workunits to free slots: second copies of late ones first."""
        for workunit in list(self._copies) if self._free() else ():
            had = self._had[workunit]
            # A host never gets the same workunit twice: on BOINC `one_result_per_host_per_wu` forbids that.
            able = next((slot for slot in self._free() if self._clients.host(slot[1]) not in had), None)
            if able is not None:
                del self._copies[workunit]
                self._start(able, workunit)
        while self._waiting and (free := self._free()):
            self._start(free[0], self._waiting.popleft())
        self._wait_for_a_client()

    def _start(self, slot: tuple[int, int], workunit: str) -> None:
        """Start training a workunit in a free slot."""
        number, client = slot
        self._idle.take(number)
        self._begin(self._known[workunit], client)

    def _wait_for_a_client(self) -> None:
        """Register an event for the return of the first absent client with a free slot, so that it gets work then."""
        now_s = self._time.now_s()
        # One announcement at a time: with thousands of absent clients each event would announce another.
        if now_s >= self._back_s and (back_s := self._idle.next_back_s(now_s)) is not None:
            self._back_s = back_s
            self._time.at(back_s, self._hand_out)

    def _wake(self, time_s: float) -> None:
        """Register an event without action, at which the loop runs, unless an earlier one is registered."""
        if not self._time.now_s() < self._wakes_s <= time_s:
            self._wakes_s = time_s
            self._time.at(time_s, lambda: None)

    def _forget(self, workunit: str) -> None:
        """Forget a workunit; events for it that are still to come then do nothing."""
        for known in (self._known, self._out, self._had, self._begun, self._trained):
            known.pop(workunit, None)
        self._on_the_way.pop(workunit, None)
        self._copies.pop(workunit, None)

    def _begin(self, staged: Staged, client: int) -> None:
        """Let a client start a workunit, from the newest published weights, as BOINC's clients and pilots do."""
        workunit = staged.workunit.name
        if self._newest[0] > staged.workunit.base_version:
            staged = replace(staged, newest=self._newest)
        name, losses, host = WorkunitName.parse(workunit), self._losses[workunit], self._clients.host(client)
        bytes_down = self._work.bytes_down(staged, client)
        # The whole course of the subtask is known now, and becomes events of the clock.
        planned = self._clients.outcome(
            client, name, self._time.now_s(), losses, bytes_down=bytes_down, target_s=staged.workunit.training.target_s
        )
        self._out.setdefault(workunit, {})[client] = self._time.now_s()
        heapq.heappush(self._begun_s, (self._time.now_s(), workunit))
        self._had[workunit] = self._had.get(workunit, frozenset()) | {host}
        self._begun.setdefault(workunit, {})[client] = staged
        self._sent.append(WorkunitSent(workunit, host, bytes_down))
        self.times.record_start(self._time.now_s(), planned)
        # Without links an upload takes no time of its own, so the slot is free when the training ends.
        has_link = self._clients.have_links and planned.lost is None
        if not has_link:
            self._time.at(planned.slot_free_s, partial(self._is_free, client))
        if planned.lost is not None:
            # Error feedback: the client considers its upload delivered and changes its residuals, although nothing
            # arrives.
            if planned.is_sent and self._work.remembers:
                self._time.at(planned.trained_s, partial(self._is_sent_in_vain, workunit, client, planned))
            self._time.at(planned.heard_of_s, partial(self._is_lost, GaveUp(workunit, planned.lost), client))
            return
        # Training is real and takes a core, so of two copies only the first one is trained in advance.
        if workunit not in self._trained:
            self._order(workunit, client, planned)
        if has_link:
            self._time.at(planned.trained_s, partial(self._is_trained, workunit, client, host, planned))
        else:
            self._time.at(planned.heard_of_s, partial(self._has_come, workunit, client, host, planned))

    def _order(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        """Order the training of a workunit for one of its clients."""
        self._trained[workunit] = client
        self._work.begin(self._begun[workunit][client], client, planned.heard_of_s, planned.fraction)

    def _make_upload(self, workunit: str, client: int, planned: SubtaskOutcome) -> Outcome:
        """Return a client's upload; it is trained now if the training was ordered for another client."""
        if self._trained.get(workunit) != client:
            self._work.cancel([workunit])
            self._order(workunit, client, planned)
        return self._work.upload(self._begun[workunit][client], client, planned.train_s)

    def _is_sent_in_vain(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        """Let a client write an upload that is lost on its way, as that changes its residuals."""
        if client in self._begun.get(workunit, {}) and workunit not in self._outcomes | self._on_the_way:
            self._make_upload(workunit, client, planned)
            self._work.cancel([workunit])
            del self._trained[workunit]

    def _is_free(self, client: int) -> None:
        """Handle that a slot of a client becomes free: give it work."""
        self._idle.add(client, self._time.now_s())
        self._hand_out()

    def _is_lost(self, outcome: GaveUp, client: int) -> None:
        """Handle that the server learns of a loss: send the workunit again, or give it up after LOSSES losses."""
        workunit = outcome.workunit
        if workunit not in self._known:
            return
        self._end_workunit(workunit, client)
        if self._out[workunit] or workunit in self._copies or workunit in self._outcomes:
            return  # another client has it, or will get it
        self._losses[workunit] += 1
        if self._losses[workunit] < LOSSES:
            self._waiting.append(workunit)
            self._hand_out()
        else:
            self._outcomes[workunit] = outcome

    def _end_workunit(self, workunit: str, client: int) -> float | None:
        """Record that a client no longer has a workunit, and return the time of its start; None if it had none."""
        clients = self._out[workunit]
        begun_s = clients.pop(client, None)
        if clients:
            heapq.heappush(self._begun_s, (max(clients.values()), workunit))
        return begun_s

    def _is_trained(self, workunit: str, client: int, host: str, planned: SubtaskOutcome) -> None:
        """Handle the end of a training: queue the upload on its client's link.

        The slot is free once the link sends this upload, so that at most one upload waits.
        """
        now_s = self._time.now_s()
        # A client sends one file after the other.
        begin_s = max(now_s, self._links_free_s[client])
        # A real client trains the next subtask while one upload is being sent, and waits when a second one queues.
        self._time.at(max(planned.slot_free_s, begin_s), partial(self._is_free, client))
        if workunit not in self._known or workunit in self._outcomes or workunit in self._on_the_way:
            return
        outcome = self._make_upload(workunit, client, planned)
        self._on_the_way[workunit] = outcome
        if isinstance(outcome, Uploaded):
            self._links_free_s[client] = begin_s + self._clients.upload_s(client, outcome.size_bytes)
        arrives_s = max(begin_s, self._links_free_s[client]) + planned.heard_of_s - planned.trained_s
        self._time.at(arrives_s, partial(self._has_come, workunit, client, host, planned))

    def _has_come(self, workunit: str, client: int, host: str, planned: SubtaskOutcome) -> None:
        """Handle the arrival of an upload: it waits for the parameter server that is free first."""
        # The server that is free first applies it, in the order of arrival.
        begin_s = max(self._time.now_s(), heapq.heappop(self._servers_free_s))
        self.times.waits_s.append(begin_s - self._time.now_s())
        heapq.heappush(self._servers_free_s, begin_s + self._fleet.update_s)
        came_s = self._time.now_s()
        served = partial(self._is_served, workunit, client, host, planned, came_s)
        self._time.at(begin_s + self._fleet.update_s, served)

    def _is_served(self, workunit: str, client: int, host: str, planned: SubtaskOutcome, came_s: float) -> None:
        """Handle that a parameter server has worked on an upload: it can be claimed; a second copy is dropped."""
        if workunit not in self._known or workunit in self._outcomes:
            return
        begun_s = self._end_workunit(workunit, client)
        self._turnarounds.add(host, 0.0 if begun_s is None else self._time.now_s() - begun_s)
        outcome = self._on_the_way.pop(workunit, None) or self._make_upload(workunit, client, planned)
        if isinstance(outcome, Uploaded):
            outcome = replace(outcome, host=host, received_s=came_s)
        self._outcomes[workunit] = outcome
