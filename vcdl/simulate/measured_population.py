"""Build a population of hosts from a BOINC project's database, without identifying any host (docs/simulate.md).

Hosts are sorted by their availability and cut into groups of equal size. Each number of a group is a median, a quantile
or a mean over its hosts within bounds: all data are claims of the hosts, and none may move a group alone.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcdl.boinc.grid.host_report import MeasuredHost

FEWEST = 15
"""Fewest hosts of a population: three groups of five, so that no number describes a single host."""
_MOST_GROUPS = 5
"""Most groups of a population. With fewer than 25 active hosts there are fewer groups, so that each has five hosts."""
_GONE_S = 30 * 86400.0
"""Seconds of silence after which a host counts as gone for good, as in BOINC's own lists of active hosts."""
_CYCLE_H = 24.0
"""Assumed hours of a session with its absence: BOINC's table has fractions only, and most people have daily habits."""
_AVAILABLE = 0.02, 0.995
"""Bounds on a host's fraction of time on, so that its sessions and its absences are both longer than 0."""
_CORES = 64
"""Most cores of a host that are counted, so that one host with a higher claim is not most of its group."""
_LEAST_DAYS = 0.05
"""Shortest stay in days, about an hour, so that the many hosts that connected once have no stay of length 0."""


def active_hosts(hosts: Sequence["MeasuredHost"], now_s: float) -> list["MeasuredHost"]:
    """Return the hosts that made a request in the last 30 days."""
    return [one for one in hosts if now_s - one.heard_of_s < _GONE_S]


def population_of(hosts: Sequence["MeasuredHost"], now_s: float) -> dict[str, Any]:
    """Return the content of a population file (docs/simulate.md), as values for YAML.

    Args:
        hosts: Hosts of a project, at least FEWEST of them still active.
        now_s: Unix time at which they were read.

    Raises:
        ValueError: Too few hosts are active.
    """
    # Groups of similar availability, which determines when a host is present; speeds are drawn within a group.
    active = sorted(active_hosts(hosts, now_s), key=lambda one: one.available)
    if len(active) < FEWEST:
        raise ValueError(f"{len(active)} hosts with measurements were active in the last 30 days, {FEWEST} are needed")
    count = min(_MOST_GROUPS, len(active) // 5)
    ends = [len(active) * number // count for number in range(count + 1)]
    stays = _stays(hosts, now_s)
    usual_flops = statistics.median(one.flops for one in active)
    return {"groups": [_group(active[first:end], usual_flops) | stays for first, end in pairwise(ends)]}


def cores_of(hosts: Sequence["MeasuredHost"]) -> int:
    """Return the number of cores of all hosts together; each host counts with at most _CORES."""
    return sum(min(_CORES, max(1, one.cores)) for one in hosts)


def _group(hosts: Sequence["MeasuredHost"], usual_flops: float) -> dict[str, Any]:
    """Return a group of a population file for these hosts; `usual_flops` is the speed of a host of speed 1."""
    low, high = _AVAILABLE
    available = statistics.fmean(min(high, max(low, one.available)) for one in hosts)
    flops = statistics.median(one.flops for one in hosts)
    zones_h = sorted(max(-12.0, min(14.0, round(one.zone_s / 1800) / 2)) for one in hosts)
    found = {
        # Count cores and not hosts, because BOINC gives each core a task.
        "share": cores_of(hosts),
        "speed": flops / usual_flops,
        "speed_spread": _spread([one.flops for one in hosts]),
        "on_h": _CYCLE_H * available,
        "off_h": _CYCLE_H * (1.0 - available),
    }
    rates = {
        "up_mb_per_s": [one.up_bytes_per_s for one in hosts if one.up_bytes_per_s > 0],
        "down_mb_per_s": [one.down_bytes_per_s for one in hosts if one.down_bytes_per_s > 0],
    }
    found |= {key: statistics.median(known) / 1e6 for key, known in rates.items() if known}
    if rates["down_mb_per_s"]:
        found["link_spread"] = _spread(rates["down_mb_per_s"])
    # Write ten quantiles, so that no single host's time zone can be read from the file.
    tenths = [zones_h[int((number + 0.5) / 10 * len(zones_h))] for number in range(10)]
    return {**{key: float(f"{value:.3g}") for key, value in found.items()}, "zones": tenths}


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of the values' logarithms, from the 16th and the 84th percentile."""
    logs = sorted(map(math.log, values))
    return (logs[int(0.84 * (len(logs) - 1))] - logs[int(0.16 * (len(logs) - 1))]) / 2


def _stays(hosts: Sequence["MeasuredHost"], now_s: float) -> dict[str, float]:
    """Fit a Weibull distribution to the days that hosts stay, and return its keys of a population file.

    Hosts that are still active will stay longer than until now: their stays are censored. If fewer than five hosts have
    left, the result is empty.
    """
    gone = [now_s - one.heard_of_s >= _GONE_S for one in hosts]
    days = [
        # Without censored stays only short ones would be counted: long ones have not ended yet.
        max(_LEAST_DAYS, ((one.heard_of_s if left else now_s) - one.created_s) / 86400.0)
        for one, left in zip(hosts, gone, strict=True)
    ]
    logs_of_gone = [math.log(stay) for stay, left in zip(days, gone, strict=True) if left]
    # With so few, the shape of the distribution would be that of some single hosts.
    if len(logs_of_gone) < 5:
        return {}
    mean_log, low, high = statistics.fmean(logs_of_gone), 0.2, 3.0
    for _ in range(40):  # bisection: the likelihood's derivative by the shape decreases
        shape = (low + high) / 2
        powers = [stay**shape for stay in days]
        weighted = sum(power * math.log(stay) for power, stay in zip(powers, days, strict=True)) / sum(powers)
        low, high = (shape, high) if 1 / shape + mean_log > weighted else (low, shape)
    scale = (sum(stay**shape for stay in days) / len(logs_of_gone)) ** (1 / shape)
    return {"stays_days": float(f"{scale * math.gamma(1 + 1 / shape):.3g}"), "stays_shape": float(f"{shape:.3g}")}
