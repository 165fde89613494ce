"""A grid whose clients exist in virtual time: subtasks are trained for real, and come back when the simulated fleet would bring them.

An upload is waited for only when the fleet's clock has come to its arrival. So the order of everything follows from the seed, and a
run repeats bit for bit, whatever else the machine does.
"""

import heapq
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from vcdl.codecs.encoding import Encoding
from vcdl.errors import folder_error
from vcdl.events import WorkunitSent
from vcdl.grids.base import GaveUp, Grid, Outcome, Results, Staged, Uploaded
from vcdl.simulate.clients import Clients, Fate
from vcdl.simulate.fleet import Fleet
from vcdl.simulate.hostile import disguised
from vcdl.simulate.training import Training
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.weights import Vector
from vcdl.workunit import UpdateHeader, WorkunitName


class VirtualGrid(Grid, Results):
    """The clients of a fleet and the parameter servers that its uploads wait for."""

    def __init__(
        self, fleet: Fleet, time: VirtualTime, training: Training, down: Encoding, up: Encoding, ahead: int = 0
    ) -> None:
        """`down` and `up`: how weights travel. `ahead`: subtasks kept ready beyond those that run."""
        self._fleet = fleet
        self._time = time
        self._training = training
        self._up = up
        self._down = down
        self._ahead = ahead
        self._clients = Clients(fleet)
        self._hostile = {hostile.client: hostile for hostile in fleet.hostile}
        self._idle = deque(client for _ in range(fleet.slots) for client in range(fleet.clients))
        """A client for each of its free slots; the one that has waited longest is first."""
        self._servers_free_s = [0.0] * fleet.servers
        self._known: dict[str, Staged] = {}
        self._waiting: deque[str] = deque()
        self._outcomes: dict[str, Outcome] = {}
        self._sent: list[WorkunitSent] = []
        self._delivered: list[set[Path]] = [set() for _ in range(fleet.clients)]

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
        self._training.done(workunit, version)

    def cancel(self, workunits: Collection[str]) -> None:
        """A client that trains one is not told, and stays busy with it until its end."""
        self._training.cancel(workunits)
        for workunit in workunits:
            self._outcomes.pop(workunit, None)
            self._known.pop(workunit, None)
        self._waiting = deque(workunit for workunit in self._waiting if workunit in self._known)

    def open_wanted(self) -> int:
        """What is out, lost ones that the server has not heard of among them, and one for each free slot."""
        return len(self._known) - len(self._waiting) + len(self._idle) + self._ahead

    # -- what happens

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._begin(self._known[self._waiting.popleft()], self._idle.popleft())

    def _begin(self, staged: Staged, client: int) -> None:
        workunit = staged.workunit.name
        fate = self._clients.fate(client, WorkunitName.parse(workunit), self._time.now_s())
        self._sent.append(WorkunitSent(workunit, self._clients.host(client), self._bytes_down(client, staged)))
        self._time.at(fate.slot_free_s, partial(self._is_free, client))
        if fate.lost is not None:
            self._time.at(fate.heard_of_s, partial(self._is_lost, GaveUp(workunit, fate.lost)))
            return
        self._training.begin(staged, fate.heard_of_s)
        self._time.at(fate.heard_of_s, partial(self._has_come, workunit, client, fate))

    def _is_free(self, client: int) -> None:
        self._idle.append(client)
        self._hand_out()

    def _is_lost(self, outcome: GaveUp) -> None:
        if outcome.workunit in self._known:
            self._outcomes[outcome.workunit] = outcome

    def _has_come(self, workunit: str, client: int, fate: Fate) -> None:
        """It waits for a server, and is in the shared weights when that has done with it."""
        begin_s = max(self._time.now_s(), heapq.heappop(self._servers_free_s))
        heapq.heappush(self._servers_free_s, begin_s + self._fleet.server_s)
        self._time.at(begin_s + self._fleet.server_s, partial(self._is_served, workunit, client, fate))

    def _is_served(self, workunit: str, client: int, fate: Fate) -> None:
        staged = self._known.get(workunit)
        if staged is None:
            return
        outcome = self._training.outcome(workunit)
        self._outcomes[workunit] = (
            self._as_uploaded(outcome, staged, client, fate) if isinstance(outcome, Uploaded) else outcome
        )

    def _as_uploaded(self, trained: Uploaded, staged: Staged, client: int, fate: Fate) -> Uploaded:
        """The upload as this client would send it: with its own training time, and by a hostile one with other weights."""
        name = WorkunitName.parse(trained.workunit)
        sent, text = self._up.read(trained.path)
        header = replace(UpdateHeader.from_json(text), train_s=fate.train_s)
        if client in self._hostile:
            sent = self._disguised(sent, staged, client, name)
        try:
            self._up.write(trained.path, sent, header.to_json())
        except OSError as error:
            raise folder_error(trained.path.parent, error) from error
        return replace(trained, size_bytes=trained.path.stat().st_size)

    def _disguised(self, sent: Vector, staged: Staged, client: int, name: WorkunitName) -> Vector:
        """What a hostile client sends instead: weights, or the difference to those that it began with."""
        if self._up.is_difference:
            return disguised(np.zeros_like(sent), sent, self._hostile[client], self._fleet, name)
        base, _ = self._down.read(staged.params)
        return disguised(base, sent, self._hostile[client], self._fleet, name)

    def _bytes_down(self, client: int, staged: Staged) -> int:
        """What the client downloads: params and description, model and shard only where it has not got them (sticky)."""
        have = self._delivered[client]
        new = {staged.model, staged.shard} - have
        have |= new
        return sum(path.stat().st_size for path in (staged.params, *new)) + len(staged.workunit.to_json().encode())
