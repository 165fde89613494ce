"""The record of one host of a job, which vcdl.trust.hosts computes from the journal."""

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Self

import msgspec

from vcdl.journal.events import UpdateApplied

KNOWN_AFTER = 5
"""Applied uploads after which a host is no longer new, even if none was verified, so that honest hosts soon count."""
KEPT_OF_ONE = 1000
"""Unverified uploads of a host that are remembered, so that the memory of a job is bounded by its number of hosts."""

STRIKES = 2.0
"""Strikes at which a host is quarantined: one refusal for an upload's form, or two for its content in quick succession.
"""
_FORGIVEN = 0.8  # below 1, so that old strikes fade
"""Factor on a host's strikes after an upload that counts."""
_QUARANTINE_UPDATES = 200
"""Updates of the job that the first quarantine lasts; each further one lasts twice as long as the one before."""
_SMOOTHING = 0.2
"""Weight of the newest upload in moving averages, so that they cover about ten uploads."""


class HostState(StrEnum):
    """The state of a host: new, trusted, refused lately (doubtful), refused for a while (quarantined), or banned."""

    NEW = "new"
    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    QUARANTINED = "quarantined"
    CONVICTED = "convicted"


class Brought(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An upload that was applied. Some hundred thousand may be in memory, so it has few and small fields."""

    host: str
    workunit: str
    version: int
    weight: float
    """The weight by trust, from 0 to 1. Other uploads were compared with it only if this is 1."""
    is_part: bool = False
    """Whether it covered only a part of its subtask, whose other samples were then reissued."""
    samples: int = 0
    fraction: float = 1.0
    """The fraction of its subtask that was trained."""

    @classmethod
    def of(cls, event: UpdateApplied, host: str) -> Self:
        """Return the upload of a journal row, with the host that uploaded it."""
        return cls(host, event.workunit, event.version, event.trust, event.is_part, event.samples, event.fraction)


def usual_fraction(uploads: Iterable[Brought]) -> float:
    """Return the median fraction of uploads, weighted by their samples; 0 without uploads.

    The weights are samples and not uploads or hosts: a host that trains next to nothing gets no vote, under however
    many names.
    """
    lately = sorted((one.fraction, one.samples) for one in uploads)
    half = sum(samples for _, samples in lately) / 2
    so_far = accumulate(samples for _, samples in lately)
    return next((fraction for (fraction, _), samples in zip(lately, so_far, strict=True) if samples > half), 0.0)


@dataclass
class HostRecord:
    """The history of one host."""

    name: str
    joined_late: bool = False
    """Whether it got its first workunit only after the job's first updates."""
    sent: int = 0
    applied: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Name of a Refusal → number of its uploads that were refused for that reason."""
    superseded: int = 0
    """Number of its uploads that came too late: after another upload of the subtask, or after a rollback."""
    lost: int = 0
    """Number of workunits that the grid gave up while this host had them."""
    turnaround_s: float | None = None
    """Seconds from sent to applied, a moving average."""
    parts: int = 0
    """Number of applied uploads that were a part of their subtask."""
    part_at_s: float = -math.inf
    """Unix time of the last partial upload."""
    samples: int = 0
    """Samples that it trained in applied uploads."""
    staleness: int = 0
    """Sum of the staleness of its applied uploads."""
    heard_of_s: float = 0.0
    """Unix time of its last event."""
    pace: float | None = None
    """Logarithm of its training seconds for one sample, a moving average, or None if unknown."""
    verified: int = 0
    """Number of its uploads that the server retrained and found good."""
    vouched: int = 0
    """The version up to which its uploads count as verified, because one drawn at that version agreed."""
    unverified: deque[Brought] = field(default_factory=lambda: deque(maxlen=KEPT_OF_ONE))
    """Its uploads of later versions than those that count as verified, oldest first."""
    suspected: int = 0
    """How often it was convicted: an upload was not the result of its subtask. The first time quarantines it."""
    convicted: str = ""
    """The workunit for which it is banned: its second conviction. Empty while it is not banned."""
    is_incomparable: bool = False
    """Whether an upload could not be compared with the server's own training, so that it may be anything."""
    strikes: float = 0.0
    """Weighted number of recent refusals; at STRIKES it is quarantined, and uploads that count reduce it."""
    quarantines: int = 0
    quarantined_until: int = 0
    """The number of the job's updates at which its last quarantine ends, or 0 if it was never quarantined."""

    @property
    def is_known(self) -> bool:
        """Whether the host is judged individually, and no longer as one of the newcomers."""
        return not self.joined_late or self.verified > 0 or self.applied >= KNOWN_AFTER

    def is_out(self, updates: int) -> bool:
        """Return whether its uploads are refused once the job has `updates` updates."""
        return bool(self.convicted) or updates < self.quarantined_until

    def state(self, updates: int) -> HostState:
        """Return the trust in it once the job has `updates` updates."""
        if self.convicted:
            return HostState.CONVICTED
        if self.is_out(updates):
            return HostState.QUARANTINED
        if self.strikes >= 1:
            return HostState.DOUBTFUL
        return HostState.TRUSTED if self.verified or self.applied >= KNOWN_AFTER else HostState.NEW

    def apply(self, event: UpdateApplied, brought: Brought, time_s: float, sent_s: float | None) -> None:
        """Count an applied upload.

        Args:
            event: The row of the upload.
            brought: The same upload, as it is remembered.
            time_s: Unix time of the row.
            sent_s: Unix time at which the host got the workunit, or None if unknown.
        """
        self.applied += 1
        if event.is_part:
            self.parts, self.part_at_s = self.parts + 1, time_s
        self.samples += event.samples
        self.staleness += event.staleness
        self.heard_of_s = time_s
        self.strikes *= _FORGIVEN
        self.unverified.append(brought)
        sample_s = event.train_s / event.samples if event.train_s is not None and event.samples > 0 else 0.0
        if sample_s > 0:  # compared after the division, which may round a tiny claim to zero
            pace = math.log(sample_s)
            self.pace = pace if self.pace is None else self.pace + _SMOOTHING * (pace - self.pace)
        if sent_s is not None:
            took_s = time_s - sent_s
            before_s = took_s if self.turnaround_s is None else self.turnaround_s
            self.turnaround_s = before_s + _SMOOTHING * (took_s - before_s)

    def quarantine(self, updates: int) -> None:
        """Refuse the host's uploads for a number of updates that doubles each time; the job has `updates` now."""
        self.strikes = STRIKES / 2
        self.quarantines += 1
        self.quarantined_until = updates + _QUARANTINE_UPDATES * 2 ** min(self.quarantines - 1, 20)

    def vouch(self, up_to: int) -> None:
        """Count all its uploads up to a version as verified."""
        self.vouched = max(self.vouched, up_to)
        while self.unverified and self.unverified[0].version <= up_to:
            self.unverified.popleft()
