"""A grid whose clients exist in virtual time: all events follow from the seed, and a run repeats bit for bit."""

import heapq
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vcdl.errors.refusal import Refusal
from vcdl.job.schema import LATE_AFTER
from vcdl.journal.events import Event, HostConvicted, UpdateApplied, UpdateRefused, WorkunitSent
from vcdl.loop.grid import GaveUp, Grid, Outcome, Results
from vcdl.loop.lateness import Out, Turnarounds, faster_hosts
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.client_work import ClientWork
from vcdl.simulate.clients import Clients, SubtaskOutcome
from vcdl.simulate.slot_times import SlotTimes
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.wire.workunit import WorkunitName

LOSSES = 3
"""Losses after which the grid gives a workunit up, as on a BOINC server (`max_error_results`, and one)."""
_REST_SUBTASKS = 10
"""A host's first rest, in subtasks; each further one is twice as long."""


class VirtualGrid(Grid, Results):
    """The simulated clients, and the parameter servers that their uploads wait for."""

    def __init__(
        self,
        clients: Clients,
        time: VirtualTime,
        work: ClientWork,
        queue_ahead: int = 0,
        late_after: float = LATE_AFTER,
    ) -> None:
        """`queue_ahead`: subtasks kept ready beyond those in training; `late_after`: as Lateness has it."""
        self._clients = clients
        self._fleet = fleet = clients.fleet
        self._time = time
        self._work = work
        self._queue_ahead = queue_ahead
        self._idle = deque(client for _ in range(fleet.slots) for client in range(fleet.clients))
        """The client of each free slot; the slot that has waited longest is first."""
        self._servers_free_s = [0.0] * fleet.servers
        self._links_free_s = [0.0] * fleet.clients
        """The moment at which each client has sent all that it has to send."""
        self._on_the_way: dict[str, Outcome] = {}
        """Workunit → its upload, on its client's link."""
        self._known: dict[str, Staged] = {}
        self._waiting: deque[str] = deque()
        self._losses: Counter[str] = Counter()
        """The losses of each workunit."""
        self._out: dict[str, dict[int, float]] = {}
        """Workunit → the clients that have it, with the virtual seconds at which they got it."""
        self._had: dict[str, frozenset[str]] = {}
        """Workunit → the hosts that ever got it."""
        self._copies: deque[str] = deque()
        """Workunits that a further client is to train."""
        self._turnarounds = Turnarounds(late_after)
        self._wakes_s = -math.inf
        """The next moment at which the loop is to look again."""
        self._back_s = 0.0
        """The next moment at which a free client is back."""
        self._refusals: Counter[str] = Counter()
        """Host → its refused uploads since the last one that counted."""
        self._rests_until_s: dict[str, float] = {}
        self._begun: dict[str, dict[int, Staged]] = {}
        """Workunit → what each client began with, which may be newer weights than another's."""
        self._trained: dict[str, int] = {}
        """Workunit → the client whose training of it was ordered."""
        self._newest: tuple[int, Path] = (0, Path())
        """The newest published version, and its weights."""
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
        self._forget(workunit)
        self._work.done(workunit, version)

    def cancel(self, workunits: Collection[str]) -> None:
        """Drop the workunits. A client that trains one is not told, and stays busy until the end of its training."""
        self._work.cancel(workunits)
        for workunit in workunits:
            self._outcomes.pop(workunit, None)
            self._forget(workunit)
        self._waiting = deque(workunit for workunit in self._waiting if workunit in self._known)

    def publish(self, version: int, params: Path) -> None:
        self._newest = version, params

    def open_wanted(self) -> int:
        """Return the open workunits, unheard losses too, plus one for each free slot whose host may work now."""
        free = sum(map(self._may_work, self._idle))
        return len(self._known) - len(self._waiting) + free + self._queue_ahead

    def slots(self) -> int:
        away = sum(1 for client in self._idle if not self._may_work(client))
        return self._fleet.all_slots - away + self._queue_ahead

    def replicate_late(self, *, queue_empty: bool) -> None:
        lateness = self._turnarounds.lateness if self._fleet.second_copies else None
        if lateness is None:
            return
        hosts = map(self._clients.host, range(self._fleet.clients))
        now_s, usual_s = self._time.now_s(), self._turnarounds.usual_s(hosts)
        out = [
            Out(workunit, now_s - max(clients.values()), self._had[workunit])
            for workunit, clients in self._out.items()
            if clients and workunit in self._known and workunit not in self._outcomes and workunit not in self._copies
        ]
        late = lateness.late(out, queue_empty=queue_empty)
        self._copies.extend(one.workunit for one in late if faster_hosts(one, usual_s))
        self._hand_out()
        ages_s = [one.age_s for one in out if one not in late]
        if ages_s:
            self._wake(now_s + max(1.0, lateness.late_after_s(queue_empty=queue_empty) - max(ages_s)))

    def care(self, events: Iterable[Event]) -> None:
        """Rest hosts whose uploads were refused more than once, and convicted ones for good, as BOINC's daemons do."""
        now_s = self._time.now_s()
        for event in events:
            match event:
                case UpdateApplied():
                    self._refusals.pop(event.host, None)
                case UpdateRefused() if event.host and event.refusal != Refusal.NO_ROOM:
                    self._refusals[event.host] += 1
                    if (again := self._refusals[event.host] - 2) >= 0:
                        self._rest_until(event.host, now_s + _REST_SUBTASKS * self._fleet.subtask_s * 2**again)
                case HostConvicted(for_good=True):
                    self._rest_until(event.host, math.inf)
                case _:
                    pass

    def _rest_until(self, host: str, until_s: float) -> None:
        self._rests_until_s[host] = max(until_s, self._rests_until_s.get(host, 0.0))
        if until_s < math.inf:
            self._time.at(until_s, self._hand_out)

    def _next_idle(self) -> int | None:
        """Take the slot that has waited longest and may work, and return its client."""
        client = next(filter(self._may_work, self._idle), None)
        if client is not None:
            self._idle.remove(client)
        return client

    def _may_work(self, client: int) -> bool:
        now_s = self._time.now_s()
        if self._rests_until_s and self._rests_until_s.get(self._clients.host(client), 0.0) > now_s:
            return False
        return self._clients.here_from(client, now_s) <= now_s

    # -- events of the clock

    def _hand_out(self) -> None:
        for workunit in list(self._copies):
            had = self._had[workunit]
            able = (one for one in self._idle if self._clients.host(one) not in had and self._may_work(one))
            client = next(able, None)
            if client is not None:
                self._copies.remove(workunit)
                self._idle.remove(client)
                self._begin(self._known[workunit], client)
        while self._waiting and (idle := self._next_idle()) is not None:
            self._begin(self._known[self._waiting.popleft()], idle)
        self._wait_for_a_client()

    def _wait_for_a_client(self) -> None:
        """Look again when the first of the free clients that are away is back, even if nothing else happens."""
        now_s = self._time.now_s()
        if now_s < self._back_s or not self._idle:
            return
        back_s = min(
            (back_s for one in self._idle if (back_s := self._clients.here_from(one, now_s)) > now_s), default=math.inf
        )
        if back_s < math.inf:
            self._back_s = back_s
            self._time.at(back_s, self._hand_out)

    def _wake(self, time_s: float) -> None:
        """Have the loop look again at this moment, unless it does sooner."""
        if not self._time.now_s() < self._wakes_s <= time_s:
            self._wakes_s = time_s
            self._time.at(time_s, lambda: None)

    def _forget(self, workunit: str) -> None:
        for known in (self._known, self._out, self._had, self._begun, self._trained):
            known.pop(workunit, None)
        self._on_the_way.pop(workunit, None)
        if workunit in self._copies:
            self._copies.remove(workunit)

    def _begin(self, staged: Staged, client: int) -> None:
        """Let a client begin with a workunit, from the newest published weights, as BOINC's clients and pilots do."""
        workunit = staged.workunit.name
        if self._newest[0] > staged.workunit.base_version:
            staged = replace(staged, newest=self._newest)
        name, losses, host = WorkunitName.parse(workunit), self._losses[workunit], self._clients.host(client)
        bytes_down = self._work.bytes_down(staged, client)
        planned = self._clients.outcome(
            client, name, self._time.now_s(), losses, bytes_down=bytes_down, target_s=staged.workunit.training.target_s
        )
        self._out.setdefault(workunit, {})[client] = self._time.now_s()
        self._had[workunit] = self._had.get(workunit, frozenset()) | {host}
        self._begun.setdefault(workunit, {})[client] = staged
        self._sent.append(WorkunitSent(workunit, host, bytes_down))
        self.times.began(self._time.now_s(), planned)
        has_link = self._clients.have_links and planned.lost is None
        if not has_link:
            self._time.at(planned.slot_free_s, partial(self._is_free, client))
        if planned.lost is not None:
            if planned.is_sent and self._work.remembers:
                self._time.at(planned.trained_s, partial(self._is_sent_in_vain, workunit, client, planned))
            self._time.at(planned.heard_of_s, partial(self._is_lost, GaveUp(workunit, planned.lost), client))
            return
        if workunit not in self._trained:
            self._order(workunit, client, planned)
        if has_link:
            self._time.at(planned.trained_s, partial(self._is_trained, workunit, client, host, planned))
        else:
            self._time.at(planned.heard_of_s, partial(self._has_come, workunit, client, host, planned))

    def _order(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        self._trained[workunit] = client
        self._work.begin(self._begun[workunit][client], client, planned.heard_of_s, planned.fraction)

    def _uploaded(self, workunit: str, client: int, planned: SubtaskOutcome) -> Outcome:
        """Return what a client brings; it is trained now if another client's training was ordered."""
        if self._trained.get(workunit) != client:
            self._work.cancel([workunit])
            self._order(workunit, client, planned)
        return self._work.upload(self._begun[workunit][client], client, planned.train_s)

    def _is_sent_in_vain(self, workunit: str, client: int, planned: SubtaskOutcome) -> None:
        """Have a client write an upload that is lost on its way: what it remembers afterwards is another matter."""
        if client in self._begun.get(workunit, {}) and workunit not in self._outcomes | self._on_the_way:
            self._uploaded(workunit, client, planned)
            self._work.cancel([workunit])
            del self._trained[workunit]

    def _is_free(self, client: int) -> None:
        self._idle.append(client)
        self._hand_out()

    def _is_lost(self, outcome: GaveUp, client: int) -> None:
        workunit = outcome.workunit
        if workunit not in self._known:
            return
        self._out[workunit].pop(client, None)
        if self._out[workunit] or workunit in self._copies or workunit in self._outcomes:
            return  # another client has it, or gets it
        self._losses[workunit] += 1
        if self._losses[workunit] < LOSSES:
            self._waiting.append(workunit)
            self._hand_out()
        else:
            self._outcomes[workunit] = outcome

    def _is_trained(self, workunit: str, client: int, host: str, planned: SubtaskOutcome) -> None:
        """Queue the upload on its client's link. The slot continues when no more than one upload waits."""
        now_s = self._time.now_s()
        begin_s = max(now_s, self._links_free_s[client])
        self._time.at(max(planned.slot_free_s, begin_s), partial(self._is_free, client))
        if workunit not in self._known or workunit in self._outcomes or workunit in self._on_the_way:
            return
        outcome = self._uploaded(workunit, client, planned)
        self._on_the_way[workunit] = outcome
        if isinstance(outcome, Uploaded):
            self._links_free_s[client] = begin_s + self._clients.upload_s(client, outcome.size_bytes)
        arrives_s = max(begin_s, self._links_free_s[client]) + planned.heard_of_s - planned.trained_s
        self._time.at(arrives_s, partial(self._has_come, workunit, client, host, planned))

    def _has_come(self, workunit: str, client: int, host: str, planned: SubtaskOutcome) -> None:
        """Queue the upload for a server, which applies it when it has finished the one before."""
        begin_s = max(self._time.now_s(), heapq.heappop(self._servers_free_s))
        self.times.waits_s.append(begin_s - self._time.now_s())
        heapq.heappush(self._servers_free_s, begin_s + self._fleet.update_s)
        came_s = self._time.now_s()
        served = partial(self._is_served, workunit, client, host, planned, came_s)
        self._time.at(begin_s + self._fleet.update_s, served)

    def _is_served(self, workunit: str, client: int, host: str, planned: SubtaskOutcome, came_s: float) -> None:
        if workunit not in self._known or workunit in self._outcomes:
            return
        took_s = self._time.now_s() - self._out[workunit].pop(client, self._time.now_s())
        self._turnarounds.add(host, took_s)
        outcome = self._on_the_way.pop(workunit, None) or self._uploaded(workunit, client, planned)
        if isinstance(outcome, Uploaded):
            outcome = replace(outcome, host=host, received_s=came_s)
        self._outcomes[workunit] = outcome
