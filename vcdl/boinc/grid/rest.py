"""The rest of a host whose last tasks failed: until when it gets no work. Pure; host_care acts on it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

_FAILURES = 3
"""Failures in a row after which a host rests; a computer without memory fails all tasks, within seconds each."""
_REFUSALS = 2
"""Refused uploads in a row, likewise: an honest host has hardly any."""
_FIRST_REST_S = 600.0
_REFUSED_REST_S = 3600.0
_LONGEST_S = 86400.0


class End(Enum):
    """What became of a task."""

    GOOD = "good"
    ERROR = "error"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    CLOCK = "clock"
    """The client gave it up as too late, before its deadline: BOINC's client goes by the host's own clock."""


@dataclass(frozen=True)
class Ended:
    """A task of a host that has come to an end."""

    time_s: float
    """Unix time."""
    end: End


@dataclass(frozen=True)
class Rest:
    """A host's rest: no task until then, and then a single one, upon whose success it has work again."""

    until_s: float
    why: str

    def is_on(self, now_s: float) -> bool:
        """Whether it lasts."""
        return now_s < self.until_s


def rest_after(ended: Iterable[Ended]) -> Rest | None:
    """The rest that follows from a host's last tasks, each failure more doubling it; None: its last task was good, or
    too few failed.
    """
    in_order = sorted(ended, key=lambda one: one.time_s)
    good = max((place for place, one in enumerate(in_order) if one.end is End.GOOD), default=-1)
    failed = in_order[good + 1 :]
    refused = sum(one.end is End.REFUSED for one in failed)
    if refused >= _REFUSALS:
        rest_s = _REFUSED_REST_S * 2 ** min(refused - _REFUSALS, 10)
    elif len(failed) >= _FAILURES:
        rest_s = _FIRST_REST_S * 2 ** min(len(failed) - _FAILURES, 10)
    else:
        return None
    return Rest(failed[-1].time_s + min(rest_s, _LONGEST_S), _words(failed))


def spared(rests: Mapping[int, Rest], active: Collection[int], now_s: float) -> bool:
    """Whether so many of the active hosts would rest that the job, or the server, is at fault: then none does.

    Hosts that left rest too, after tasks that they did not bring, and say nothing of those at work.
    """
    return 2 * sum(host in active and rest.is_on(now_s) for host, rest in rests.items()) > len(active)


def _words(failed: Sequence[Ended]) -> str:
    nouns = {
        End.REFUSED: "refused",
        End.ERROR: "failed",
        End.TIMEOUT: "not brought in time",
        End.CLOCK: "given up as too late before their deadline (its clock is ahead)",
    }
    counts = {end: sum(one.end is end for one in failed) for end in nouns}
    return f"its last {len(failed)} tasks: {', '.join(f'{n} {nouns[end]}' for end, n in counts.items() if n)}"
