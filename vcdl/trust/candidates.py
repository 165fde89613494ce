"""Which upload the server retrains next: a draw that no client can predict, weighted by what is at stake.

Uploads that look suspicious take turns with ordinary ones. Among the ordinary ones, the draw chooses a host by the
weight that its unverified uploads have in the job, and more if they disagree with those of others; then one of that
host's newest uploads, by a secret.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable

from vcdl.journal.events import (
    VALIDATION,
    Event,
    HostConvicted,
    RolledBack,
    StopDecided,
    UpdateApplied,
    UploadVerified,
    VersionEvaluated,
)
from vcdl.journal.monitor import Monitor
from vcdl.trust.hosts import LEAST_WEIGHT, HostHistory

_BACKLOG = 1000
"""Most uploads to draw from, so that memory is bounded; the files of older ones are mostly gone."""
_AFTER_A_SLEEPER = 3
"""Uploads drawn beyond the budget for each host that lied after an honest upload, and each fall of the job's score."""
_FALL = 0.1
"""Fraction of its best value by which a job's score must fall to count as a fall; smaller changes may be noise."""
_FIRST = 3.0
"""Factor on the weight of a host's uploads in the draw while none has agreed, so that newcomers are verified first."""
_NEWEST = 3
"""Number of a host's last uploads from which one is drawn: if a host begins to lie, its last uploads are the lies."""


class Candidates:
    """The uploads of a job that may be retrained: pass each journal event to `follow`, then ask for the `next` one."""

    def __init__(self, secret: str, share: float, monitor: Monitor | None) -> None:
        """Begin without uploads.

        Args:
            secret: The run's secret, which decides the draw.
            share: The budget: the part of all updates to draw (`trust > verify`).
            monitor: The measure by which the job is judged, or None for that of its first evaluation.
        """
        self._secret = secret
        self._share = share
        self._waiting: dict[str, UpdateApplied] = {}
        """Workunit → its upload, oldest first."""
        self._monitor = monitor
        self._best, self._is_low, self._falls = -math.inf, False, 0
        """The best score so far, whether the last one is far below it, and how often it fell that far."""
        self._was_strange = False
        """Whether the last retrained upload looked suspicious."""

    def add(self, update: UpdateApplied) -> None:
        """Add an upload whose event names its host."""
        self._waiting[update.workunit] = update
        # Drop the oldest, because its files are deleted first.
        if len(self._waiting) > _BACKLOG:
            del self._waiting[next(iter(self._waiting))]

    def follow(self, event: Event) -> None:
        """Remove the uploads that an event settles, and count falls of the job's score."""
        match event:
            # A host can make any upload look suspicious, so this verdict must not vouch for its other uploads.
            case UploadVerified(was_strange=True):
                self._waiting.pop(event.workunit, None)
            case UploadVerified():
                self._keep(lambda one: one.host != event.host or one.version > event.up_to)
            case HostConvicted():
                self._keep(lambda one: one.host != event.host)
            case RolledBack() if not event.host:  # an upload that was dropped with a liar's may itself be a lie
                self._keep(lambda one: one.version not in event.dropped)
            case VersionEvaluated(split=split) if split == VALIDATION:
                self._apply_measure(event)
            case StopDecided():
                self._waiting.clear()
            case _:
                pass

    def _keep(self, may_be_drawn: Callable[[UpdateApplied], bool]) -> None:
        self._waiting = {name: one for name, one in self._waiting.items() if may_be_drawn(one)}

    def _apply_measure(self, event: VersionEvaluated) -> None:
        """Count a fall of the job's score, after which more uploads are drawn: a host may be lying now."""
        self._monitor = self._monitor or Monitor.of_first(event)
        score = self._monitor.score(self._monitor.value(event))
        is_low = score < self._best - _FALL * abs(self._best)
        self._falls += is_low and not self._is_low
        self._is_low, self._best = is_low, max(self._best, score)

    def retrained(self, update: UpdateApplied) -> None:
        """Remove an upload that was retrained, or that could not be; its kind decides whose turn is next."""
        self._was_strange = is_strange(update)
        self.skip(update)

    def skip(self, update: UpdateApplied) -> None:
        """Remove an upload whose files are gone, or that cannot be compared."""
        self._waiting.pop(update.workunit, None)

    def has_budget(self, hosts: HostHistory) -> bool:
        """Return whether fewer uploads were drawn than the budget allows, which grows with each sign of a lie."""
        allowed = self._share * hosts.updates + _AFTER_A_SLEEPER * (hosts.sleepers + self._falls)
        return hosts.verified_drawn < allowed

    def next(self, hosts: HostHistory, *, may_draw: bool, is_closing: bool) -> UpdateApplied | None:
        """Return the next upload to retrain, alternately a suspicious one and an ordinary one; None without any.

        Args:
            hosts: The history of the job's hosts.
            may_draw: Whether every upload may be drawn, and not only those that must be verified.
            is_closing: Whether all epochs are closed: then a host's very last upload is drawn.
        """
        waiting = [one for one in self._waiting.values() if one.host not in hosts.disputed]
        strange = [one for one in waiting if is_strange(one)]
        ordinary = [one for one in waiting if not is_strange(one)]
        usual = self._next_usual(ordinary, hosts, may_draw=may_draw, is_closing=is_closing)
        # Take turns: otherwise a host that looks suspicious, but is within rounding, would keep the lies of others from
        # being found.
        is_turn = usual is None or not self._was_strange
        return strange[-1] if strange and is_turn else usual

    def _next_usual(
        self, waiting: list[UpdateApplied], hosts: HostHistory, *, may_draw: bool, is_closing: bool
    ) -> UpdateApplied | None:
        """Return the next upload among those that look like others, or None if none is due.

        It is one of the newest of the host with the most unverified weight, chosen by a secret.
        """
        urgent = [one for one in waiting if hosts.must_be_verified(one.host)]
        if urgent and math.isinf(hosts.closest):
            # No host is convicted before one agrees, and the first uploads may all be lies that agree with each other.
            # So begin with the one most like the server's own step.
            return max(urgent, key=lambda one: one.reference_cosine or 0.0)
        if may_draw:
            urgent = waiting
        if not urgent:
            return None
        brought = defaultdict[str, float](float)
        for one in urgent:
            is_first = hosts.must_be_verified(one.host) and not (hosts.sleepers or self._is_low)
            doubts = _FIRST if is_first else 1.0
            # The weight of the draw is what is at stake: the unproven weight of a host in the job, and more if it
            # disagrees with others.
            brought[one.host] += doubts * one.trust * (1.0 - _agreement(one))
        most = max(brought, key=brought.__getitem__)
        newest = [one for one in urgent if one.host == most][-1 if is_closing else -_NEWEST :]
        return max(newest, key=lambda one: _rank(self._secret, "verify", one.workunit))


def is_strange(update: UpdateApplied) -> bool:
    """Return whether an upload looked suspicious when it was applied, and therefore got a small weight."""
    return update.trust < LEAST_WEIGHT


def _agreement(update: UpdateApplied) -> float:
    """Return the smaller of a step's cosines with other hosts' steps and with the server's own; 0 without any."""
    return min((one for one in (update.cosine, update.reference_cosine) if one is not None), default=0.0)


def _rank(secret: str, what_for: str, workunit: str) -> bytes:
    """Return eight pseudo-random bytes by which workunits are ordered for a draw.

    They depend on `secret`, so no client can predict which of its uploads is verified.

    Args:
        secret: The run's secret.
        what_for: Name of the draw, so that several draws are independent.
        workunit: Name of the workunit.
    """
    return hashlib.sha256(f"{secret}\0{what_for}\0{workunit}".encode()).digest()[:8]
