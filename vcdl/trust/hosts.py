"""The history of each host, computed from the journal's events: what it uploaded, and how far it is trusted.

A `HostHistory` applies the journal event by event, as a JobHistory does, and each event takes the same time.

A host is trusted for uploads that the server has retrained (vcdl.trust.verification). Until then its share of uploads
is little larger than that of others, however fast it is, and late joiners have one share together. Afterwards, its
uploads that nothing vouches for are limited to a share of the last uploads.
"""

from collections import deque
from dataclasses import dataclass, field
from math import exp, inf

from vcdl.errors.refusal import Blame, blame_of
from vcdl.journal.events import (
    HostConvicted,
    Recorded,
    ResultRefused,
    RolledBack,
    RunPaused,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    UploadVerified,
    WorkunitCancelled,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.trust.host_record import KEPT_OF_ONE, KNOWN_AFTER, STRIKES, Brought, HostRecord, HostState, usual_fraction

_FIRST_UPDATES = 10
"""Updates of a job after which a new host counts as a late joiner, since by then the first fleet has uploaded."""
_NEWCOMERS = 0.1
"""Share of recent uploads that all unknown late joiners may have, so that new names cannot flood a job."""
_BEFORE_A_CHECK = 5
"""Uploads that a host of the first fleet may make before one was verified. With three, hosts sixteen times as fast as
others had one of ninety uploads refused in every third job. If the host lies, its uploads are removed again."""
_FIRST_UPLOADS, _FASTER = 3, 1.5
"""Uploads that a host may make before one is verified; later, as a multiple of an equal share."""
_NOT_YET = 1.25
"""Factor on the hosts that have uploaded, so that names that only hold work hardly shrink an equal share."""
_ENOUGH_PROVEN = 2
"""Number of hosts with a verified upload at which hosts that cannot be compared are refused. With one it would be too
early: it may be the only host with the server's backend."""
_LATELY = 100
"""Number of last uploads from which shares are computed; the hosts of these uploads count as being at work."""
_SHARE = 0.2
"""Share of recent uploads that one host may have in weights and medians while unverified, so that it never
dominates."""
_OF_FEW = 1.5
"""The same for a small fleet, as a multiple of an equal share, since a fifth is less than that below five hosts."""
LEAST_WEIGHT = 0.05
"""The least weight by trust in the host; a smaller one means that the upload itself looked suspicious."""
NO_MEASURE = 0.999
"""The weight of an upload that is trusted, but not compared with, because its host used up its share of comparisons."""
_STRIKES_OF = {Blame.FORM: STRIKES, Blame.CONTENT: 1.0}
_TAKEN_BACK = 0.5
"""The least weight of a convicted host's upload that is taken back; others have hardly changed the weights."""


@dataclass
class HostHistory:
    """The hosts of a job, according to its journal: pass each event to `follow` in order, then read.

    The same events always give the same state, so servers that read the same journal decide alike. Questions about a
    host that the journal does not name are answered as for a new host, except where `hosts[…]` is read.
    """

    hosts: dict[str, HostRecord] = field(default_factory=dict)
    """Host's name → its record."""
    updates: int = 0
    """Number of updates applied in the job."""
    _senders: dict[str, dict[str, float]] = field(default_factory=dict)
    """Workunit that has not ended → host → Unix time at which the host got it, in the order of sending."""
    _earlier: dict[str, str] = field(default_factory=dict)
    """Workunit that was running when an earlier session of the run ended → the last host that got it."""
    _lately: deque[Brought] = field(default_factory=lambda: deque(maxlen=_LATELY))
    """The last uploads."""
    verified: int = 0
    """Number of uploads that were retrained and compared."""
    verified_drawn: int = 0
    """Number of these that were drawn within the budget `trust > verify`, not because they had to be verified."""
    verified_s: float = 0.0
    """Seconds that the server trained for verification."""
    disputed: dict[str, str] = field(default_factory=dict)
    """Host whose conviction is due → the workunit whose upload differs from the server's own training."""
    closest: float = inf
    """The smallest distance of an upload that agreed with the server's own training; infinity before any agreed."""

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
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
                self._supersede(event, recorded.time_s)
            case WorkunitFailed():
                for name in self._forget(event.workunit):
                    self._host(name).lost += 1
            case WorkunitCancelled():
                self._forget(event.workunit)
            case UploadVerified():
                self._verify(event)
            case HostConvicted():
                self._convict(self._host(event.host), event)
            case RolledBack() if event.host:
                self._drop(event)
            case RunStarted() | RunPaused():
                # Running workunits are submitted again, so no host has lost them. An upload may still arrive.
                self._earlier |= {workunit: self.sender(workunit) for workunit in self._senders}
                self._senders.clear()
            case StopDecided():
                self._senders.clear()
                self._earlier.clear()

    # -- read

    def sender(self, workunit: str) -> str:
        """Return the last host that a workunit was sent to, or "" if it is unknown or the workunit has ended."""
        return next(reversed(self._senders.get(workunit, {})), self._earlier.get(workunit, ""))

    def _get_record(self, host: str) -> HostRecord:
        """Return the record of a host, or a new one for a host without history."""
        return self.hosts.get(host) or HostRecord(host, joined_late=self.updates >= _FIRST_UPDATES)

    @property
    def bringing(self) -> int:
        """The number of hosts that had an upload applied."""
        return sum(host.applied > 0 for host in self.hosts.values())

    def is_out(self, host: str) -> bool:
        """Return whether uploads of a host are refused now."""
        return self._get_record(host).is_out(self.updates)

    def weight(self, host: str) -> float:
        """Return the weight of a host's next upload, from 0 (refused) to 1.

        It falls as the host's unverified uploads use up its share of the last ones. Below 1, other uploads are not
        compared with it.
        """
        if self.is_out(host):
            return 0.0
        of_it, share = self._of(host), self._share
        unverified = sum(one.weight for one in of_it if one.version > self.hosts[one.host].vouched)
        measures = sum(one.weight >= 1.0 for one in of_it)
        is_measure = measures < share * max(len(self._lately), _LATELY / 4)
        return min(1.0 if is_measure else NO_MEASURE, max(LEAST_WEIGHT, share * _LATELY - unverified))

    def has_room(self, host: str) -> bool:
        """Return whether one more upload of a host may be applied now.

        Until one of its uploads was verified, a host is limited to little more than an equal share of the updates, and
        all newcomers together to one share. A host whose uploads cannot be verified has no room once others were.
        """
        if self._may_be_anything(host):
            return False
        record = self.hosts.get(host)
        if record is None or record.verified:
            return True
        if not record.is_known:
            return len(self._of(host)) < max(_FIRST_UPLOADS, _NEWCOMERS * len(self._lately))
        there = self._there | {host}
        bring = sum(self.hosts[one].applied > 0 for one in there)
        hosts = min(len(there), max(1.0, _NOT_YET * bring))
        return record.applied < max(_BEFORE_A_CHECK, 1 + _FASTER * self.updates / hosts)

    def may_bring_part(self, host: str) -> bool:
        """Return whether a partial upload of this host counts: fewer than half of its applied uploads were partial."""
        record = self._get_record(host)
        return 2 * record.parts < record.applied

    def held_s(self, workunit: str, host: str, now_s: float) -> float | None:
        """Return for how many seconds a host has had a workunit, or None if it got it in an earlier session of the run.

        A host may upload before the journal records that it got the workunit: then the answer is 0.
        """
        sent_s = self._senders.get(workunit, {}).get(host)
        if sent_s is None:
            return None if self._earlier.get(workunit) == host else 0.0
        return now_s - sent_s

    @property
    def usual_fraction(self) -> float:
        """The median fraction of a subtask that recent uploads had trained, weighted by samples; 0 without uploads."""
        return usual_fraction(self._lately)

    @property
    def busy_part(self) -> float:
        """The number of running workunits, as a fraction of the hosts that were recently at work; 1 at most."""
        return min(1.0, len(self._senders) / len(self._recent_hosts)) if self._lately else 1.0

    @property
    def _recent_hosts(self) -> set[str]:
        return {one.host for one in self._lately}

    @property
    def _there(self) -> set[str]:
        """The hosts that have recently uploaded, or have work."""
        return self._recent_hosts.union(*self._senders.values())

    def is_proven(self, host: str) -> bool:
        """Return whether at least one upload of a host agreed with the server's own training."""
        return self._get_record(host).verified > 0

    def is_known(self, host: str) -> bool:
        """Return whether a host is judged individually, and no longer as one of the newcomers."""
        return self._get_record(host).is_known

    def is_incomparable(self, host: str) -> bool:
        """Return whether an upload of a host could not be compared with the server's own training."""
        return self._get_record(host).is_incomparable

    def is_vouched(self, host: str, version: int) -> bool:
        """Return whether an update of a host counts as verified: an upload drawn at this version or later agreed.

        Args:
            host: The host, which is not banned; otherwise the answer is False.
            version: The version that the update made.
        """
        record = self.hosts.get(host)
        return record is not None and not record.convicted and version <= record.vouched

    def must_be_verified(self, host: str) -> bool:
        """Return whether to verify the next upload of a host even beyond the budget: it is unproven, or was refused.

        The host must be in `hosts`.
        """
        record = self.hosts[host]
        if record.convicted or record.is_incomparable or host in self.disputed:
            return False
        return not record.verified or record.strikes >= 1

    @property
    def sleepers(self) -> int:
        """The number of hosts convicted although an upload had agreed. Others may do so too, so more is verified."""
        return sum(record.suspected > 0 and record.verified > 0 for record in self.hosts.values())

    @property
    def to_convict(self) -> list[HostConvicted]:
        """The convictions to record now, empty before any host is proven.

        Convicted are hosts with an upload that differs from the server's own training, and, once two hosts are proven,
        hosts whose uploads cannot be compared.
        """
        if not self._proven:
            return []
        found = [self._conviction(self.hosts[host], workunit) for host, workunit in self.disputed.items()]
        odd = [one for one in self.hosts.values() if one.unverified and self._may_be_anything(one.name)]
        return found + [self._conviction(one, one.unverified[-1].workunit) for one in odd]

    @property
    def _proven(self) -> int:
        """The number of hosts with an upload that agreed with the server's own training."""
        return sum(map(self.is_proven, self.hosts))

    def _conviction(self, host: HostRecord, workunit: str) -> HostConvicted:
        """Return the event that convicts a host: its unverified uploads of enough weight are removed.

        The subtasks of all its unverified uploads are reissued, except where its upload was only a part.
        """
        versions = tuple(one.version for one in host.unverified if one.weight >= _TAKEN_BACK)
        again = tuple(one.workunit for one in host.unverified if not one.is_part)
        return HostConvicted(host.name, workunit, versions, again, for_good=host.suspected > 0)

    @property
    def _share(self) -> float:
        """The share of the last uploads that one host may have."""
        return min(1.0, max(_SHARE, _OF_FEW / max(1, len(self._recent_hosts))))

    def _of(self, host: str) -> list[Brought]:
        """Return the last uploads of a host; for a newcomer, those of all newcomers."""
        if self.is_known(host):
            return [one for one in self._lately if one.host == host]
        return [one for one in self._lately if not self.is_known(one.host)]

    def usual_train_s(self, host: str, samples: int) -> float | None:
        """Return the seconds that a host usually takes for `samples` samples, or None for a new host."""
        record = self._get_record(host)
        return None if record.pace is None or record.applied < KNOWN_AFTER else samples * exp(record.pace)

    def samples_per_s(self, host: str) -> float | None:
        """Return the recent speed of a host that is in `hosts`, a moving average, or None if unknown."""
        pace = self.hosts[host].pace
        return None if pace is None else exp(-pace)

    def state(self, host: str) -> HostState:
        """Return the state of a host that is in `hosts`."""
        return self.hosts[host].state(self.updates)

    # -- following

    def _host(self, name: str) -> HostRecord:
        """Return the record of a host, adding a new one to `hosts` if needed."""
        return self.hosts.setdefault(name, self._get_record(name))

    def _apply(self, event: UpdateApplied, time_s: float) -> None:
        """Count an applied upload for its host; one without a known host only counts as an update."""
        self.updates += 1
        name = event.host or self.sender(event.workunit)
        sent = self._forget(event.workunit)
        if not name:
            return
        brought = Brought.of(event, name)
        self._host(name).apply(event, brought, time_s, sent.get(name))
        self._lately.append(brought)

    def _forget(self, workunit: str) -> dict[str, float]:
        """Forget a workunit that has ended; return the hosts that had it in this session."""
        self._earlier.pop(workunit, None)
        return self._senders.pop(workunit, {})

    def _refuse(self, name: str, refusal: str, time_s: float) -> None:
        if name:
            self._host(name).refused[refusal] += 1
            self._host(name).heard_of_s = time_s
            self._strike(self._host(name), _STRIKES_OF.get(blame_of(refusal), 0.0))

    def _supersede(self, event: UpdateSuperseded, time_s: float) -> None:
        if name := event.host or self.sender(event.workunit):
            host = self._host(name)
            host.superseded += 1
            host.heard_of_s = time_s
        self._forget(event.workunit)

    def _drop(self, event: RolledBack) -> None:
        """Forget uploads, of any host, that were dropped together with a convicted host's; they are reissued."""
        for host in self.hosts.values():
            host.unverified = deque((one for one in host.unverified if one.version not in event.dropped), KEPT_OF_ONE)

    def _convict(self, host: HostRecord, event: HostConvicted) -> None:
        """Quarantine a host, because one wrong bit in its memory is enough for a conviction; ban it the second time."""
        host.suspected += 1
        self.disputed.pop(host.name, None)
        host.unverified.clear()  # all of these subtasks are reissued, once
        if event.for_good:
            host.convicted = event.workunit
        else:
            host.quarantine(self.updates)

    def _may_be_anything(self, host: str) -> bool:
        """Return whether a host's uploads cannot be compared while others' were compared and found good.

        Hosts that cannot be compared do not vote: names are free, and three hosts with three names each outnumbered
        seven honest ones, for 70 points of accuracy. If all hosts have another backend than the server, none is
        verified, and all count.
        """
        return self.is_incomparable(host) and self._proven >= _ENOUGH_PROVEN

    def _strike(self, host: HostRecord, strikes: float) -> None:
        """Add strikes to a host, and quarantine it at STRIKES, unless too many hosts would then be out."""
        host.strikes += strikes
        if strikes and host.strikes >= STRIKES and self._may_quarantine(host):
            host.quarantine(self.updates)

    def _may_quarantine(self, host: HostRecord) -> bool:
        """Return whether at most half of the hosts at work would be out, with this one; with more the job would stall.

        Return False for a host that is already out.
        """
        if self.is_out(host.name):
            return False
        there = self._there
        out = {name for name, record in self.hosts.items() if self.is_out(name) and (record.applied or name in there)}
        return 2 * (len(out) + 1) <= len(there | out | {host.name})

    def _verify(self, event: UploadVerified) -> None:
        """Apply the verdict on an upload: it makes its host proven, disputed, or incomparable."""
        host = self._host(event.host)
        if not event.is_comparable:
            host.is_incomparable = True
            return
        self.verified += 1
        self.verified_s += event.train_s
        self.verified_drawn += not (event.was_strange or self.must_be_verified(event.host))
        if not event.agrees:
            self.disputed.setdefault(event.host, event.workunit)
            return
        self.closest = min(self.closest, event.apart)
        host.verified += 1
        host.strikes = 0.0
        if event.was_strange:
            return
        host.vouch(event.up_to)
