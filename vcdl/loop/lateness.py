"""Decide how long a subtask may be out before a second host trains it too, from the job's own turnaround times."""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from vcdl.job.schema import LATE_AFTER

_NEEDED = 8
"""Measured turnarounds below which there is no estimate: with fewer, a single slow host would set the percentile."""
# Ten of the MEASURED turnarounds are above this percentile, so a single straggler does not set it.
_TAIL = 0.95
_LEAST_S = 20.0
"""Seconds below which nothing is late: server and client sometimes take this long for a task without any work."""
_DEADLINE = 3.0
"""Deadline that hosts are given, as a multiple of the 95th percentile: a shorter deadline makes BOINC's client hurry or
give up."""
MEASURED = 200
"""Number of last turnarounds that the estimate uses, so that it follows a changing fleet."""
_SHARE = 0.1
"""Most subtasks, as a fraction of those out, that get a second host while others wait for a first one."""


@dataclass(frozen=True)
class Out:
    """A subtask that at least one host has got and none has uploaded."""

    workunit: str
    age_s: float
    """Seconds since the last host got it."""
    hosts: frozenset[str]
    """All hosts that were ever given the subtask."""


@dataclass(frozen=True)
class Lateness:
    """The usual seconds from sending to upload in a job, and the limits that follow from them."""

    tail_s: float
    """The 95th percentile of the turnarounds, in seconds."""
    median_s: float
    late_after: float = LATE_AFTER
    """`pacing > late_after`. If it is infinite, nothing is late."""

    @classmethod
    def of(cls, turnarounds_s: Sequence[float], late_after: float = LATE_AFTER) -> "Lateness | None":
        """Estimate the usual times of a job.

        Args:
            turnarounds_s: Seconds from sending to upload of the last subtasks.
            late_after: `pacing > late_after`.

        Returns:
            None if there are too few turnarounds.
        """
        if len(turnarounds_s) < _NEEDED:
            return None
        in_order = sorted(turnarounds_s)
        return cls(in_order[math.ceil(_TAIL * len(in_order)) - 1], median(in_order), late_after)

    def late_after_s(self, *, queue_empty: bool) -> float:
        """Return the seconds after which a second host gets a subtask.

        Args:
            queue_empty: Whether nothing else waits to be trained, so that a second copy delays no other subtask.
        """
        # With other work left, a second copy takes a host from another subtask, so only the slowest are copied. At the
        # end of a job hosts are idle anyway, and a subtask slower than the median already delays the end (decision
        # 037).
        return max(_LEAST_S, self.late_after * (self.median_s if queue_empty else self.tail_s))

    def deadline_s(self, least_s: float, most_s: float) -> float:
        """Return the deadline of new subtasks in seconds, at least `least_s` and at most `most_s`."""
        return min(most_s, max(least_s, _DEADLINE * self.tail_s))

    def late(self, out: Collection[Out], *, queue_empty: bool) -> list[Out]:
        """Return the subtasks that another host should train too, oldest first.

        Args:
            out: All subtasks that hosts have got and not uploaded.
            queue_empty: Whether no other subtask waits for a host. If not, only the slowest tenth at most is returned.
        """
        after_s = self.late_after_s(queue_empty=queue_empty)
        late = sorted((one for one in out if one.age_s > after_s), key=lambda one: (-one.age_s, one.workunit))
        # A whole fleet may look late at the same time, for example after an outage. Copies of everything would double
        # its work.
        return late if queue_empty else late[: math.ceil(_SHARE * len(out))]


class Turnarounds:
    """The last MEASURED turnarounds of a job with their hosts, from which lateness is estimated."""

    def __init__(self, late_after: float = LATE_AFTER, known: Iterable[tuple[str, float]] = ()) -> None:
        """Start from known turnarounds.

        Args:
            late_after: `pacing > late_after`.
            known: Hosts and their seconds, newest last.
        """
        self._late_after = late_after
        self._last = deque(known, maxlen=MEASURED)

    def add(self, host: str, took_s: float) -> None:
        """Record a turnaround: the host uploaded a subtask `took_s` seconds after it had received it."""
        self._last.append((host, took_s))

    @property
    def lateness(self) -> Lateness | None:
        """The estimate from these turnarounds, or None if there are too few."""
        return Lateness.of([took_s for _, took_s in self._last], self._late_after)

    def usual_s(self, hosts: Iterable[str]) -> dict[str, float | None]:
        """Return each of the given hosts with its mean turnaround in seconds, or None if it has none yet."""
        took_s: dict[str, list[float]] = defaultdict(list)
        for host, seconds in self._last:
            took_s[host].append(seconds)
        return {host: fmean(took_s[host]) if host in took_s else None for host in hosts}


def faster_hosts(one: Out, usual_s: Mapping[str, float | None]) -> list[str]:
    """Return the hosts that may get a copy of a late subtask: those whose usual turnaround is below the subtask's age.

    If there are none, return the hosts of unknown speed. Hosts that already got the subtask are left out.

    Args:
        one: The subtask.
        usual_s: Host at work → its usual turnaround in seconds, or None if unknown.
    """
    others = {host: took_s for host, took_s in usual_s.items() if host not in one.hosts}
    known = sorted(host for host, took_s in others.items() if took_s is not None and took_s < one.age_s)
    # A host that is known to be slower would upload its copy after the first one. A new host may be faster.
    return known or sorted(host for host, took_s in others.items() if took_s is None)
