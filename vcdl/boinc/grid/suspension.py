"""Compute how long a host whose last tasks failed is suspended.

Pure functions of the tasks; vcdl.boinc.grid.host_care applies the suspensions.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

_FAILURES = 3
"""Failures in a row after which a host is suspended, since a computer without memory fails all tasks within seconds."""
_REFUSALS = 2
"""Refused or lost uploads after which a host is suspended: an honest host has hardly any, so two are enough."""
_FIRST_SUSPENSION_S = 600.0
"""Seconds of the first suspension after failures, doubled by each further failure."""
_REFUSED_SUSPENSION_S = 3600.0
"""Seconds of the first suspension after refusals, longer because the uploads cost the server work."""
LONGEST_SUSPENSION_S = 86400.0
"""Seconds of the longest suspension, so that a repaired host is tried at least once a day."""
SAME_MINUTE_S = 60.0
"""Seconds around a lost transfer in which other hosts' tasks show whether the server lost it."""


class End(Enum):
    """How a task ended."""

    GOOD = "good"
    ERROR = "error"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    CLOCK = "clock"
    """The client aborted the task as too late, although its deadline had not passed: the host's clock is ahead."""
    LOST = "lost"
    """A file was not transferred, down or up: the server lost it, or the host never sent it."""


@dataclass(frozen=True)
class Ended:
    """A task of a host that has ended."""

    time_s: float
    """Unix time."""
    end: End


@dataclass(frozen=True)
class Suspension:
    """A host's suspension: no task until its end, then a single one; if that succeeds, the host gets work again."""

    until_s: float
    """Unix time of its end."""
    why: str
    since_s: float = 0.0
    """Unix time of the last task that led to the suspension; a later task that succeeds ends it."""
    is_quarantine: bool = False
    """Whether a job's quarantine is the reason; then the suspension stays, whatever other hosts do."""

    def is_on(self, now_s: float) -> bool:
        """Return whether the suspension lasts at this time."""
        return now_s < self.until_s


def suspension_after(ended: Iterable[Ended]) -> Suspension | None:
    """Return the suspension that a host's last tasks cause; None if they cause none.

    Its length doubles with each further failure, up to LONGEST_SUSPENSION_S.
    """
    in_order = sorted(ended, key=lambda one: one.time_s)
    # Count only failures since the last success, so that an honest host with a rare error is never suspended for its
    # total.
    good = max((place for place, one in enumerate(in_order) if one.end is End.GOOD), default=-1)
    failed = in_order[good + 1 :]
    # Count separately the uploads that cost the server a check or a connection; other failures end on the client.
    refused = sum(one.end in (End.REFUSED, End.LOST) for one in failed)
    if refused >= _REFUSALS:
        # Limit the exponent: a host with thousands of failures would overflow a float. LONGEST_SUSPENSION_S limits the
        # result anyway.
        suspension_s = _REFUSED_SUSPENSION_S * 2 ** min(refused - _REFUSALS, 10)
    elif len(failed) >= _FAILURES:
        suspension_s = _FIRST_SUSPENSION_S * 2 ** min(len(failed) - _FAILURES, 10)
    else:
        return None
    last_s = failed[-1].time_s
    # Count from the failure and not from now, so that the same tasks give the same end in each call and after a
    # restart.
    return Suspension(last_s + min(suspension_s, LONGEST_SUSPENSION_S), _words(failed), last_s)


def of_hosts(ended: Mapping[int, Sequence[Ended]]) -> dict[int, list[Ended]]:
    """Return the ended tasks, keyed by host, without lost transfers that were the server's fault."""
    lost = {host: [one.time_s for one in tasks if one.end is End.LOST] for host, tasks in ended.items()}
    good = {host: [one.time_s for one in tasks if one.end is End.GOOD] for host, tasks in ended.items()}

    def around(times: Mapping[int, Sequence[float]], host: int, time_s: float) -> set[int]:
        near = (other for other, at in times.items() if any(abs(one - time_s) <= SAME_MINUTE_S for one in at))
        return {other for other in near if other != host}

    def is_the_server_s(host: int, one: Ended) -> bool:
        # The server is at fault if, within the same minute, at least as many other hosts lost a transfer as completed
        # one. It also counts as at fault if no other host was active, since then nothing speaks against the host.
        met = around(lost, host, one.time_s)
        return one.end is End.LOST and len(around(good, host, one.time_s) - met) <= len(met)

    return {host: [one for one in tasks if not is_the_server_s(host, one)] for host, tasks in ended.items()}


@dataclass(frozen=True)
class Suspensions:
    """The suspended hosts of a project, as stored in a file.

    A suspension outlives the end of a job and a new app version.
    """

    of: Mapping[int, Suspension]
    """Suspensions by host. One that is over stays until the host's next task succeeds."""
    forgiven_until_s: float = 0.0
    """Unix time up to which failures are ignored, because most hosts had them."""

    def after(
        self, ended: Mapping[int, Sequence[Ended]], quarantined: Mapping[int, str], there: Collection[int], now_s: float
    ) -> "Suspensions":
        """Return the suspensions after these tasks.

        If more than half of the active hosts would be suspended, the hosts are not to blame: only quarantines stay, and
        all failures so far are forgiven.

        Args:
            ended: The last tasks by host, as `ended_tasks` returns them.
            quarantined: Hosts in a job's quarantine, with the reason.
            there: The hosts that are online.
            now_s: Unix time.
        """
        # Keep stored suspensions, which could not be computed again: their tasks leave the window of the newest
        # results, or their job is deleted, and the host would get work too early.
        kept = {
            host: suspension
            for host, suspension in self.of.items()
            if _last_good_s(ended.get(host, ())) <= suspension.since_s
        }
        condemned = self._quarantines(quarantined, now_s)
        new = {}
        for host, tasks in of_hosts(ended).items():
            suspension = suspension_after(one for one in tasks if one.time_s > self.forgiven_until_s)
            if suspension is not None and (host not in kept or suspension.until_s > kept[host].until_s):
                new[host] = suspension
        suspended = {**kept, **new}
        at_work = set(there) - condemned.keys()
        idle = [host for host in at_work & suspended.keys() if suspended[host].is_on(now_s)]
        # A broken job, a full disk or a bad release fails on all hosts, and suspending all would stop the project.
        # Forgive their failures up to now, so that the next call does not repeat this.
        if new and 2 * len(idle) > len(at_work):
            return Suspensions(condemned, forgiven_until_s=now_s)
        return replace(self, of={**suspended, **condemned})

    def _quarantines(self, quarantined: Mapping[int, str], now_s: float) -> dict[int, Suspension]:
        """Return the suspensions of hosts in a job's quarantine; each lasts a day from the job's last report."""
        until_s = now_s + LONGEST_SUSPENSION_S
        said = {host: Suspension(until_s, why, until_s, is_quarantine=True) for host, why in quarantined.items()}
        kept = {
            host: suspension
            for host, suspension in self.of.items()
            if suspension.is_quarantine and suspension.is_on(now_s)
        }
        # Renew them at most every ten minutes: a new end in each call would write hosts.json every 15 s.
        lately = {host for host, suspension in kept.items() if suspension.until_s > until_s - _FIRST_SUSPENSION_S}
        return kept | {host: suspension for host, suspension in said.items() if host not in lately}


def _last_good_s(tasks: Iterable[Ended]) -> float:
    return max((one.time_s for one in tasks if one.end is End.GOOD), default=0.0)


def _words(failed: Sequence[Ended]) -> str:
    nouns = {
        End.REFUSED: "refused",
        End.LOST: "without their file, while other hosts' files arrived",
        End.ERROR: "failed",
        End.TIMEOUT: "not returned in time",
        End.CLOCK: "given up as too late before their deadline (its clock is ahead)",
    }
    counts = {end: sum(one.end is end for one in failed) for end in nouns}
    return f"its last {len(failed)} tasks: {', '.join(f'{n} {nouns[end]}' for end, n in counts.items() if n)}"
