"""Forecast a job on the hosts of a population, by simulated runs with hosts and speed drawn anew each time.

The range assumes no distribution: a further outcome falls below the k-th of n with a probability of k / (n + 1). Mean
speeds are not drawn but spread evenly over their distribution, so that few runs cover it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from vcdl.job import Job
from vcdl.planner.spot_market import HELD, OutcomeRange
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.weightless import simulated_s

RUNS = 20
"""Simulated runs of a forecast: at least 9, or else the ends of an 80 % range would be outside of all outcomes."""
_NEAR = 0.05
"""Width at which the search for the fewest hosts ends, as a fraction of their number, because their speed is not known
more precisely."""
_STRIDE = 7
"""Step between the speeds of successive seeds: coprime to RUNS, so that later seeds are not the slower ones."""
_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class HostForecast:
    """The simulated durations of a job on a number of hosts."""

    clients: int
    outcomes_s: tuple[float, ...]
    """Virtual seconds of each run, sorted; infinite where the job was given up."""

    @property
    def wall_s(self) -> OutcomeRange:
        """The median, and the range that contains a fraction HELD of further outcomes."""
        low, median, high = (_quantile(self.outcomes_s, part) for part in ((1 - HELD) / 2, 0.5, (1 + HELD) / 2))
        return OutcomeRange(low, median, high)

    def fraction_within(self, deadline_s: float) -> float:
        """Return the fraction of the runs that ended within `deadline_s` virtual seconds."""
        return sum(one <= deadline_s for one in self.outcomes_s) / len(self.outcomes_s)

    def words(self, deadline_s: float | None = None) -> str:
        """Return the forecast as text: `200 hosts: 3.0 days (2.6 to 3.9)`; with a deadline, how many runs met it."""
        late = "" if deadline_s is None else f", {self.fraction_within(deadline_s):.0%} in time"
        return f"{self.clients} hosts: {range_words(self.wall_s)}{late}"

    def as_dict(self, deadline_s: float | None = None) -> dict[str, Any]:
        """Return the forecast as an object for JSON output."""
        wall_s = {name: round(value, 1) for name, value in vars(self.wall_s).items() if value < math.inf}
        kept = None if deadline_s is None else self.fraction_within(deadline_s)
        return {"clients": self.clients, "wall_s": wall_s or None, "kept": kept}


@dataclass(frozen=True)
class JobOnHosts:
    """A job to be simulated on different numbers of hosts."""

    job: Job
    fleet: ClientFleet
    error: float
    """Relative standard deviation of the hosts' mean speed around the measured one."""
    end_s: float = 0.0
    """Seconds after the last subtask until the job's end."""
    bytes_down: int = 0
    """Bytes of a subtask's download, if the fleet simulates links."""
    bytes_up: int = 0
    """Bytes of its upload."""

    def cut(self, shards: int, subtask_s: float) -> "JobOnHosts":
        """Return the same job with another number of shards and another duration of a subtask."""
        job = self.job.model_copy(update={"data": self.job.data.model_copy(update={"shards": shards})})
        return replace(self, job=job, fleet=self.fleet.model_copy(update={"subtask_s": subtask_s}))

    def on(self, clients: int) -> HostForecast:
        """Simulate the job on a number of hosts, RUNS times."""
        # Spread the mean speeds evenly over their distribution: twenty random ones would leave its ends to chance.
        speeds = [math.exp(self.error * NormalDist().inv_cdf((run + 1) / (RUNS + 1))) for run in range(RUNS)]
        outcomes_s = []
        for run in range(RUNS):
            subtask_s = self.fleet.subtask_s * speeds[run * _STRIDE % RUNS]
            fleet = self.fleet.model_copy(update={"clients": clients, "seed": run + 1, "subtask_s": subtask_s})
            # A seed for each run: other hosts, other losses, and other absences.
            outcomes_s.append(simulated_s(self.job, fleet, self.bytes_down, self.bytes_up) + self.end_s)
        return HostForecast(clients, tuple(sorted(outcomes_s)))


def fewest_hosts(
    on: Callable[[int], HostForecast], tried: Sequence[HostForecast], deadline_s: float
) -> HostForecast | None:
    """Return the forecast with the fewest hosts that meets a deadline in HELD of its runs, or None if none does.

    Args:
        on: Simulates a number of hosts.
        tried: Forecasts so far. If one meets the deadline, smaller numbers of hosts are simulated by bisection.
        deadline_s: The deadline in virtual seconds.
    """
    best = min(
        (one for one in tried if one.fraction_within(deadline_s) >= HELD), key=lambda one: one.clients, default=None
    )
    if best is None:
        return None
    low = max((one.clients for one in tried if one.clients < best.clients), default=best.clients)
    # Bisect, because more hosts are at least as fast.
    while best.clients - low > max(1.0, _NEAR * best.clients):
        middle = on((low + best.clients) // 2)
        if middle.fraction_within(deadline_s) >= HELD:
            best = middle
        else:
            low = middle.clients
    return best


def range_words(values: OutcomeRange) -> str:
    """Return a median and its range in one unit: `3.0 days (2.6 to 3.9)`."""
    if values.median == math.inf:
        return "never: a subtask fails too often"
    unit, length_s = next((one for one in _UNITS if values.median >= 2 * one[1]), _UNITS[-1])
    low, median, high = (value / length_s for value in (values.low, values.median, values.high))
    return f"{median:.1f} {unit} ({low:.1f} to {'never' if high == math.inf else f'{high:.1f}'})"


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return the quantile `part`, from 0 to 1, of sorted outcomes."""
    place = part * (len(ordered) + 1) - 1
    below = math.floor(place)
    # No interpolation towards a run that never ended.
    if place == below or ordered[below + 1] == math.inf:
        return ordered[math.ceil(place)]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
