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
    """Weighted number of recent refusals; at 2 it is quarantined, and uploads that count reduce it."""
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
