"""The history of each host, computed from the journal's events: what it brought, how good that was, how far it is
believed.

A `HostHistory` follows the journal event by event, as a JobHistory does: no I/O and no clock of its own, and an event
takes the same time, however many hosts there are.

Every host is compared with the others. One that joins a fleet of known hosts begins with little weight; where all are
new, all count fully. An upload's gain is compared with the fleet's lately, and a host with the other hosts: late in a
job honest uploads, too, may make the weights a little worse.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from statistics import median
from typing import Self

from vcdl.journal.events import (
    Recorded,
    ResultRefused,
    RunPaused,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    UploadScored,
    WorkunitCancelled,
    WorkunitFailed,
    WorkunitSent,
)

_SMOOTHING = 0.2
"""Share of the newest upload in a moving average: an average over some ten."""
_FIRST_WEIGHT = 0.3
_KNOWN_AFTER = 5
"""Applied uploads after which a host is no longer new."""
_AT_WORK = 50
"""The last uploads; their hosts are those at work."""
_GAINS_KEPT = 20
"""Gains fall by orders of magnitude while a job learns: only the last ones compare."""
_GAINS_NEEDED = 12
_LEAST_SPREAD = 0.25
"""Share of the usual gain: where all clients have alike data, gains differ by per cents, and fall by as many."""
_WORST, _BEST = -6.0, 2.0
"""Bounds of one upload's score: a single one neither condemns a host nor excuses others."""
TELLING = frozenset(
    {
        "against_others",
        "bad_counters",
        "negative_moments",
        "no_training_effect",
        "norm_too_large",
        "not_finite",
        "step_too_long",
    }
)
"""Refusals that say something of the host: they count as the worst of scores."""
_DOUBTFUL = -1.25
_BAD = -2.25
"""Scores below which a host's weight falls, and at which it is 0 and the host quarantined."""
_PROVEN_AFTER = 10
"""Scored uploads after which a host may have proved itself."""
_HOSTS_NEEDED = 3
"""Scored hosts at work below which nobody can say which of them is strange."""
_QUARANTINE_UPDATES = 200
"""Updates of the job that the first quarantine lasts; each further one lasts twice as long as the last."""


class HostState(StrEnum):
    """How far a host is believed, in a word."""

    NEW = "new"
    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    QUARANTINED = "quarantined"


@dataclass
class HostRecord:
    """The history of one host."""

    name: str
    joined_late: bool = False
    """Whether other hosts were known when it got its first workunit."""
    sent: int = 0
    applied: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Uploads that were refused, by the refusal's name."""
    superseded: int = 0
    lost: int = 0
    """Workunits that the grid gave up while it had them."""
    turnaround_s: float | None = None
    """Seconds from sent to applied, a moving average."""
    samples: int = 0
    """Samples that it trained for applied uploads."""
    staleness: int = 0
    """Sum over its applied uploads."""
    heard_of_s: float = 0.0
    """Unix time of its last event."""
    pace: float | None = None
    """Logarithm of the seconds of training that a sample takes, a moving average; None: not known."""
    scored: int = 0
    """Uploads whose gain was measured."""
    average: float = 0.0
    """The moving average of its uploads' scores."""
    quarantines: int = 0
    quarantined_until: int = 0
    """The number of the job's updates at which it is tried again."""

    @property
    def experience(self) -> float:
        """The share of its weight that a host has for being known."""
        if not self.joined_late:
            return 1.0
        return _FIRST_WEIGHT + (1.0 - _FIRST_WEIGHT) * min(1.0, self.applied / _KNOWN_AFTER)


@dataclass
class HostHistory:
    """The hosts of a job as its journal tells of them; `follow` each event in the order of the journal, then read."""

    hosts: dict[str, HostRecord] = field(default_factory=dict)
    updates: int = 0
    """Updates applied in the job."""
    _senders: dict[str, dict[str, float]] = field(default_factory=dict)
    """Workunit that has not come to an end → its hosts, the last one last, with the Unix time at which it was sent."""
    _earlier: dict[str, str] = field(default_factory=dict)
    """Workunit that was out when a session ended → the host that had it."""
    _at_work: deque[str] = field(default_factory=lambda: deque(maxlen=_AT_WORK))
    """The hosts of the last uploads."""
    _gains: deque[float] = field(default_factory=lambda: deque(maxlen=_GAINS_KEPT))
    """The last gains of hosts that are not doubtful."""
    _waiting: list[UploadScored] = field(default_factory=list)
    """Uploads whose gains wait to be compared, as too few are known."""
    _quarantined: set[str] = field(default_factory=set)
    """Hosts that were in quarantine at the last look."""
    _has_known: bool = False
    """Whether any host has brought enough to be known."""

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """The history that a journal tells."""
        history = cls()
        for recorded in events:
            history.follow(recorded)
        return history

    def follow(self, recorded: Recorded) -> None:
        """Take in the journal's next event."""
        match event := recorded.event:
            case WorkunitSent():
                host = self._host(event.host)
                host.sent += 1
                host.heard_of_s = recorded.time_s
                self._senders.setdefault(event.workunit, {})[event.host] = recorded.time_s
            case UpdateApplied():
                self._apply(event, recorded.time_s)
            case UpdateRefused():
                self._refuse(event.host or self.sender(event.workunit), event.refusal, recorded.time_s)
                self._forget(event.workunit)
            case ResultRefused():
                name = event.host or self.sender(event.workunit)
                self._refuse(name, event.refusal, recorded.time_s)
                self._senders.get(event.workunit, {}).pop(name, None)
            case UpdateSuperseded():
                if name := event.host or self.sender(event.workunit):
                    host = self._host(name)
                    host.superseded += 1
                    host.heard_of_s = recorded.time_s
                self._forget(event.workunit)
            case WorkunitFailed():
                for name in self._forget(event.workunit):
                    self._host(name).lost += 1
            case WorkunitCancelled():
                self._forget(event.workunit)
            case UploadScored():
                self._score(event)
            case RunStarted() | RunPaused():
                # What was out is handed out again, and no host has lost it. An upload may still come.
                self._earlier |= {workunit: self.sender(workunit) for workunit in self._senders}
                self._senders.clear()
            case StopDecided():
                self._senders.clear()
                self._earlier.clear()
            case _:
                pass

    # -- read

    def sender(self, workunit: str) -> str:
        """The host that a workunit was sent to last; empty when that is not known, or the workunit has ended."""
        return next(reversed(self._senders.get(workunit, {})), self._earlier.get(workunit, ""))

    def is_quarantined(self, host: str) -> bool:
        """Whether uploads of a host are refused now."""
        record = self.hosts.get(host)
        return record is not None and self.updates < record.quarantined_until

    def weight(self, host: str) -> float:
        """How far an upload of this host counts, from 0 to 1."""
        record = self.hosts.get(host)
        if record is None:
            return 1.0
        if self.is_quarantined(host):
            return 0.0
        usual = median(self.hosts[name].experience for name in self._at_work) if self._at_work else 1.0
        known = min(1.0, record.experience / usual)
        return known * min(1.0, max(_FIRST_WEIGHT / 3, (self._score_of(record) - _BAD) / (_DOUBTFUL - _BAD)))

    def usual_train_s(self, host: str, samples: int) -> float | None:
        """Seconds that so many samples used to take a host; None for one that is new."""
        record = self.hosts.get(host)
        if record is None or record.pace is None or record.applied < _KNOWN_AFTER:
            return None
        return samples * exp(record.pace)

    def samples_per_s(self, host: str) -> float | None:
        """How fast a host trains lately; None: not known."""
        pace = self.hosts[host].pace
        return None if pace is None else exp(-pace)

    def is_proven(self, host: str) -> bool:
        """Whether a host's uploads were good so often that some of the next ones tell enough."""
        record = self.hosts.get(host)
        return record is not None and record.scored >= _PROVEN_AFTER and self._score_of(record) > _DOUBTFUL / 2

    def score(self, host: str) -> float | None:
        """How good a host's uploads are beside those of the others, in spreads of the fleet's gains; None: not scored
        yet.
        """
        record = self.hosts.get(host)
        return self._score_of(record) if record is not None and record.scored else None

    def state(self, host: str) -> HostState:
        """How far a host is believed, in a word."""
        if self.is_quarantined(host):
            return HostState.QUARANTINED
        record = self.hosts[host]
        if record.quarantines or self._score_of(record) < _DOUBTFUL:
            return HostState.DOUBTFUL
        return HostState.NEW if record.applied < _KNOWN_AFTER else HostState.TRUSTED

    # -- following

    def _host(self, name: str) -> HostRecord:
        if name not in self.hosts:
            self.hosts[name] = HostRecord(name, joined_late=self._has_known)
        return self.hosts[name]

    def _apply(self, event: UpdateApplied, time_s: float) -> None:
        self.updates += 1
        name = event.host or self.sender(event.workunit)
        sent = self._forget(event.workunit)
        if not name:
            return
        host = self._host(name)
        host.applied += 1
        host.samples += event.samples
        host.staleness += event.staleness
        host.heard_of_s = time_s
        self._has_known |= host.applied >= _KNOWN_AFTER
        self._at_work.append(name)
        sample_s = event.train_s / event.samples if event.train_s is not None and event.samples > 0 else 0.0
        if sample_s > 0:
            pace = log(sample_s)
            host.pace = pace if host.pace is None else host.pace + _SMOOTHING * (pace - host.pace)
        if name in sent:
            took_s = time_s - sent[name]
            before_s = took_s if host.turnaround_s is None else host.turnaround_s
            host.turnaround_s = before_s + _SMOOTHING * (took_s - before_s)

    def _forget(self, workunit: str) -> dict[str, float]:
        """A workunit has come to an end; returns the hosts that had it in this session."""
        self._earlier.pop(workunit, None)
        return self._senders.pop(workunit, {})

    def _refuse(self, name: str, refusal: str, time_s: float) -> None:
        if name:
            self._host(name).refused[refusal] += 1
            self._host(name).heard_of_s = time_s
            if refusal in TELLING:
                self._take(self._host(name), _WORST)

    # -- scores

    def _score(self, event: UploadScored) -> None:
        if not event.host:
            return
        self._waiting.append(event)
        if not self.is_quarantined(event.host) and self._score_of(self._host(event.host)) > _DOUBTFUL:
            self._gains.append(event.gain)  # a doubtful host is scored most often: it would become the measure
        if len(self._gains) < _GAINS_NEEDED:
            return
        usual = median(self._gains)
        spread = median(abs(gain - usual) for gain in self._gains)
        spread = max(spread, _LEAST_SPREAD * abs(usual)) or 1.0
        for scored in self._waiting:
            self._take(self._host(scored.host), min(_BEST, max(_WORST, (scored.gain - usual) / spread)))
        self._waiting.clear()

    def _take(self, host: HostRecord, score: float) -> None:
        """Take in the score of one upload."""
        host.scored += 1
        host.average += _SMOOTHING * (score - host.average)
        if score < _DOUBTFUL and self._score_of(host) <= _BAD and self._may_quarantine(host):
            host.quarantines += 1
            host.quarantined_until = self.updates + _QUARANTINE_UPDATES * 2 ** (host.quarantines - 1)
            self._quarantined.add(host.name)

    def _may_quarantine(self, host: HostRecord) -> bool:
        """Whether most hosts will still be believed: a job without them would stand still."""
        if self.is_quarantined(host.name):
            return False
        self._quarantined = {name for name in self._quarantined if self.is_quarantined(name)}
        return 2 * (len(self._quarantined) + 1) < len(self._quarantined.union(self._at_work))

    def _score_of(self, host: HostRecord) -> float:
        """A host's average beside the median of the hosts at work: all of them fall when the job learns less."""
        others = {name for name in self._at_work if self.hosts[name].scored}
        if len(others) < _HOSTS_NEEDED:
            return 0.0
        return host.average - min(0.0, median(self.hosts[name].average for name in others))
