"""The hosts of a run as the planner's model knows them, by what its profile measured."""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

from vcdl.planner.throughput import HostType, Servers, Subtask
from vcdl.profile.stages import AWAY, FOLD, OF_HOST, TRAIN, RunProfile, StageSums
from vcdl.report.wording import grouped

_ONCE = ("build", "first")
"""What a process does before its first subtask only."""
_FIXED = tuple(stage for stage in OF_HOST if stage != TRAIN)


@dataclass(frozen=True)
class HostClass:
    """Hosts of a run that train about equally fast."""

    name: str
    hosts: tuple[str, ...]


def host_classes(profile: RunProfile) -> list[HostClass]:
    """The hosts in classes, fastest first; in a class none is more than twice as fast as another.

    Their bounds are the same for all runs, so that a host that lies about its speed moves no other one.
    """
    speeds = {}
    for host in profile.hosts:
        sums = profile.total([host])
        seconds = sums.seconds.get(TRAIN, 0.0) + sums.seconds.get("first", 0.0)
        if sums.samples and seconds > 0:
            speeds[host] = sums.samples / seconds
    classes: defaultdict[int, list[str]] = defaultdict(list)
    for host, speed in speeds.items():
        classes[math.floor(math.log2(speed))].append(host)
    found = []
    for _, hosts in sorted(classes.items(), reverse=True):
        usual = statistics.median(speeds[host] for host in hosts)
        found.append(HostClass(f"{grouped(usual) if usual >= 100 else f'{usual:.3g}'} samples/s", tuple(sorted(hosts))))
    silent = tuple(sorted(host for host in profile.hosts if profile.total([host]).subtasks and host not in speeds))
    return [*found, HostClass("speed not told", silent)] if silent else found


def measured_type(profile: RunProfile, measured: HostClass) -> HostType:
    """A class of hosts, for the model: seconds that a subtask needs, and how many a host has at a time."""
    sums, uses = profile.total(measured.hosts), [profile.hosts[host] for host in measured.hosts]
    at_once = sum(use.most_out for use in uses) / len(uses)
    at_work_s = sum(use.active_s - use.idle_s for use in uses)
    # Little's law: as many are trained at a time as come a second, by the seconds that each takes.
    slots = sums.subtasks * sums.mean_s(*OF_HOST) / at_work_s if at_work_s > 0 else 1.0
    once_s = sums.mean_s(*_ONCE) * sums.subtasks / max(1, sums.compiled) if sums.compiled < sums.subtasks else 0.0
    fixed = _FIXED if not once_s else tuple(stage for stage in _FIXED if stage not in _ONCE)
    return HostType(
        name=measured.name,
        count=len(measured.hosts),
        fixed_s=sums.mean_s(*fixed),
        sample_s=sums.seconds.get(TRAIN, 0.0) / max(1, sums.samples),
        away_s=sums.mean_s(AWAY),
        slots=min(max(1.0, slots), max(1.0, at_once)),
        at_once=max(1.0, at_once),
        once_s=once_s,
    )


def measured_types(profile: RunProfile) -> list[HostType]:
    """All hosts of a run, for the model."""
    return [measured_type(profile, one) for one in host_classes(profile)]


def measured_servers(profile: RunProfile, count: int) -> Servers:
    """The run's servers, for the model."""
    return Servers(max(1, count), profile.total().mean_s(FOLD))


def mean_subtask(sums: StageSums) -> Subtask:
    """The mean subtask."""
    count = max(1, sums.subtasks)
    return Subtask(sums.samples / count, sums.bytes_up / count, sums.bytes_down / count)


def fixed_s(profile: RunProfile) -> float:
    """Seconds of a run before its first subtask begins, and after its last one, if it has ended."""
    first_s = min((host.first_s for host in profile.hosts.values() if host.first_s is not None), default=0.0)
    return first_s + (profile.history.wall_s - profile.last_applied_s if profile.history.finished else 0.0)
