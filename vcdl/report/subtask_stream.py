"""Track the most recent subtasks of a run as spans of time on hosts, each with its fate."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from vcdl.journal.events import (
    Event,
    Recorded,
    ResultRefused,
    RunPaused,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    WorkunitCancelled,
    WorkunitFailed,
    WorkunitSent,
)

_SPANS = 1200
"""Spans that are kept: as many as a picture can show apart."""
_STALENESS = 1000
"""Updates whose staleness is kept."""


class Fate(StrEnum):
    """How a subtask ended on a host."""

    AT_WORK = "at work"
    TRAINED = "trained"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    """The upload came too late, or the server cancelled the workunit."""
    LOST = "lost"
    PAUSED = "paused"
    """The run is paused; the subtask continues with it."""


@dataclass(frozen=True)
class Span:
    """The time in which one host had one workunit."""

    host: str
    workunit: str
    begin_s: float
    """Unix time at which the host got it."""
    end_s: float
    """Unix time at which the host no longer had it, or the present time for Fate.AT_WORK."""
    fate: Fate


def by_host(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Return host → its spans; hosts and spans are ordered by the start of their (first) span."""
    found: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda one: one.begin_s):
        found.setdefault(span.host, []).append(span)
    return found


def side_by_side(spans: Sequence[Span], most: int | None = None) -> Iterator[tuple[Span, int]]:
    """Yield each span with the number of a lane, from 0, such that spans in the same lane do not overlap.

    Args:
        spans: The spans of one host, in the order in which they began.
        most: The largest number of lanes, or None for no limit. If it is too small, spans overlap.
    """
    # The end of the last span of each lane.
    ends: list[float] = []
    for span in spans:
        lane = next((at for at, end_s in enumerate(ends) if end_s <= span.begin_s), len(ends))
        # Too few lanes: the span goes where the overlap is shortest.
        if lane == most:
            lane = min(range(most), key=ends.__getitem__)
        ends[lane : lane + 1] = [span.end_s]
        yield span, lane


@dataclass
class SubtaskStream:
    """The spans of a run's most recent subtasks.

    Call `follow` with each journal event in order, then read the fields.
    """

    ended: deque[Span] = field(default_factory=lambda: deque(maxlen=_SPANS))
    """The last spans that have ended, in the order of their ends."""
    staleness: deque[int] = field(default_factory=lambda: deque(maxlen=_STALENESS))
    """Staleness of the last updates."""
    last_s: float = 0.0
    """Unix time of the last event."""
    _out: dict[str, dict[str, float]] = field(default_factory=dict)
    """Workunit that hosts have → host → Unix time at which the host got it."""

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
        self.last_s = max(self.last_s, recorded.time_s)
        match event := recorded.event:
            case WorkunitSent():
                # A workunit may be at several hosts: a late one gets a second copy.
                self._out.setdefault(event.workunit, {})[event.host] = recorded.time_s
            case UpdateApplied():
                self.staleness.append(event.staleness)
                self._end(event.workunit, event.host, Fate.TRAINED, recorded.time_s, others=Fate.SUPERSEDED)
            case UpdateRefused():
                self._end(event.workunit, event.host, Fate.REFUSED, recorded.time_s, others=Fate.LOST)
            case ResultRefused():
                self._end(event.workunit, event.host, Fate.REFUSED, recorded.time_s)
            case UpdateSuperseded() | WorkunitCancelled():
                host = "" if isinstance(event, WorkunitCancelled) else event.host
                self._end(event.workunit, host, Fate.SUPERSEDED, recorded.time_s, others=Fate.SUPERSEDED)
            case WorkunitFailed():
                self._end(event.workunit, "", Fate.LOST, recorded.time_s, others=Fate.LOST)
            case RunPaused():
                for workunit in list(self._out):
                    self._end(workunit, "", Fate.PAUSED, recorded.time_s, others=Fate.PAUSED)
            case Event():
                pass

    @property
    def hosts_at_work(self) -> int:
        """The number of hosts that have a workunit now."""
        return len({host for hosts in self._out.values() for host in hosts})

    def host_of(self, workunit: str) -> str:
        """Return the last host that got a workunit, or "" if no host has it."""
        return next(reversed(self._out.get(workunit, {})), "")

    def spans(self, now_s: float | None) -> list[Span]:
        """Return all spans, including those that are under way.

        Args:
            now_s: Unix time at which spans under way end for now; None to omit them, as the run is not running.
        """
        at_work = [
            Span(host, workunit, begin_s, max(now_s, begin_s), Fate.AT_WORK)
            for workunit, hosts in self._out.items()
            for host, begin_s in hosts.items()
            if now_s is not None
        ]
        return [*self.ended, *at_work]

    def lose(self, workunit: str, now_s: float) -> None:
        """Mark a workunit as lost at all of its hosts, which died without an event in the journal."""
        self._end(workunit, "", Fate.LOST, now_s, others=Fate.LOST)

    def _end(self, workunit: str, host: str, fate: Fate, now_s: float, others: Fate | None = None) -> None:
        """Record that a workunit ended.

        Args:
            workunit: The workunit.
            host: The host at which it ended; if that host does not have it, the last one that got it is taken.
            fate: How it ended at this host.
            now_s: Unix time.
            others: How it ended at its other hosts; None if they continue.
        """
        hosts = self._out.get(workunit, {})
        # Events of older journals, and failures, name no host: the last one that got the workunit is the likeliest.
        host = host if host in hosts else next(reversed(hosts), host)
        if host:
            self.ended.append(Span(host, workunit, hosts.pop(host, now_s), now_s, fate))
        if others is not None:
            self._out.pop(workunit, None)
            self.ended += [Span(other, workunit, begin_s, now_s, others) for other, begin_s in hosts.items()]
        elif not hosts:
            self._out.pop(workunit, None)
