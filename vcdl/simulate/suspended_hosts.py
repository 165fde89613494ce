"""Suspend simulated hosts after refused uploads, and ban convicted ones, as BOINC's daemons treat real hosts."""

import math
from collections import Counter
from collections.abc import Iterable

from vcdl.errors.refusal import Refusal
from vcdl.journal.events import Event, HostConvicted, UpdateApplied, UpdateRefused

_PENALTY_SUBTASKS = 10
"""Length of a host's first suspension after refusals, in subtasks, so that a short simulation shows the effect. Each
further suspension is twice as long."""


class SuspendedHosts:
    """The hosts that get no work now, from the events of the journal. Times are virtual seconds."""

    def __init__(self, subtask_s: float) -> None:
        """Begin without suspensions.

        Args:
            subtask_s: Mean seconds of a subtask, in which suspensions are measured.
        """
        self._subtask_s = subtask_s
        self._refusals: Counter[str] = Counter()
        """Host → number of its refused uploads since its last applied one."""
        self._until_s: dict[str, float] = {}
        """Host → time until which it gets no work; infinity for a banned one."""

    def follow(self, events: Iterable[Event], now_s: float) -> list[float]:
        """Apply the journal's new events, and return the times until which hosts are suspended by them.

        Args:
            events: The events.
            now_s: The present time.

        Returns:
            The end of each new suspension, in the order of the events; a ban has none.
        """
        ends_s = []
        for event in events:
            match event:
                case UpdateApplied():
                    self._refusals.pop(event.host, None)
                case UpdateRefused() if event.host and event.refusal != Refusal.NO_ROOM:
                    self._refusals[event.host] += 1
                    if (again := self._refusals[event.host] - 2) >= 0:
                        until_s = now_s + _PENALTY_SUBTASKS * self._subtask_s * 2**again
                        self._suspend(event.host, until_s)
                        ends_s.append(until_s)
                case HostConvicted(for_good=True):
                    self._suspend(event.host, math.inf)
                case _:
                    pass
        return ends_s

    def _suspend(self, host: str, until_s: float) -> None:
        """Suspend a host, unless it already is for longer."""
        self._until_s[host] = max(until_s, self._until_s.get(host, 0.0))

    @property
    def is_empty(self) -> bool:
        """Whether no host was ever suspended, so that a grid need not look at each."""
        return not self._until_s

    def is_suspended(self, host: str, now_s: float) -> bool:
        """Return whether a host gets no work now."""
        return self._until_s.get(host, 0.0) > now_s
