"""Convert a run's measured hosts and servers for the planner's model."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.planner.forecast import MODEL_ERROR, Work
from vcdl.planner.throughput import HostType, Servers, Subtask
from vcdl.profile.stages import AWAY, FOLD, OF_HOST, ONCE, SERVER, TRAIN, RunProfile, StageSums
from vcdl.report.wording import group_digits

_HALF_FREE = 0.2
"""Busy fraction below which a slot is not counted as one, because it was hardly used."""
_FINAL = 3
"""Evaluations after the last subtask: of its epoch, and of both final splits."""
_MOST_TIMES = 8.0
"""Highest speed of a slot that is counted, as a multiple of the median one: of lognormal speeds with a spread of 0.45
two in a million are as fast."""
_FIXED = tuple(stage for stage in OF_HOST if stage != TRAIN)


@dataclass(frozen=True)
class HostClass:
    """Hosts of a run that train about equally fast."""

    name: str
    hosts: tuple[str, ...]


def host_classes(profile: RunProfile) -> list[HostClass]:
    """Group a run's hosts by training speed, fastest first; within a class speeds differ by less than a factor of two.

    The bounds are powers of two, so that a host that lies about its speed moves no other into another class. Hosts
    without a known speed form the last class.
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
        found.append(
            HostClass(f"{group_digits(usual) if usual >= 100 else f'{usual:.3g}'} samples/s", tuple(sorted(hosts)))
        )
    silent = tuple(sorted(host for host in profile.hosts if profile.total([host]).subtasks and host not in speeds))
    return [*found, HostClass("speed unknown", silent)] if silent else found


def measured_type(profile: RunProfile, measured: HostClass) -> HostType:
    """Return a class of hosts in the terms of the planner's model, from the measured times of its subtasks."""
    sums, uses = profile.total(measured.hosts), [profile.hosts[host] for host in measured.hosts]
    at_once = sum(use.most_out for use in uses) / len(uses)
    at_work_s = sum(use.at_work_s for use in uses)
    subtasks = max(1, sums.subtasks)
    # Where each subtask has a process of its own, as on BOINC, building and compiling belong to every subtask.
    once_s = sums.mean_s(*ONCE) * subtasks / sums.compiled if 0 < sums.compiled < sums.subtasks else 0.0
    fixed = tuple(stage for stage in _FIXED if not once_s or stage not in ONCE)
    busy_s = sums.mean_s(*fixed, TRAIN)
    # A profile that starts later does not include such times.
    at_work_s -= once_s * sums.compiled if profile.since_s == 0.0 else 0.0
    # Little's law: the number in training is the arrivals a second times the seconds of each.
    trained = subtasks * busy_s / at_work_s if at_work_s > 0 else 1.0
    slots = max(1.0, min(at_once, math.ceil(trained - _HALF_FREE)))
    # A slot also waits between two subtasks, until the client notices the end and starts the next process. If a host
    # has no more subtasks than slots, the slot also waits until the last one is applied.
    waits_s = sums.mean_s(AWAY, SERVER, FOLD) if at_once <= slots else 0.0
    between_s = max(0.0, slots * at_work_s / subtasks - busy_s - waits_s)
    return HostType(
        name=measured.name,
        count=len(measured.hosts),
        fixed_s=sums.mean_s(*fixed) + between_s,
        sample_s=sums.seconds.get(TRAIN, 0.0) / max(1, sums.samples),
        away_s=max(0.0, sums.mean_s(AWAY) - (between_s if at_once > slots else 0.0)),
        slots=slots,
        at_once=max(1.0, at_once),
        once_s=once_s,
    )


def measured_types(profile: RunProfile) -> list[HostType]:
    """Return all hosts of a run in the terms of the planner's model, one type for each class of speed."""
    return [measured_type(profile, one) for one in host_classes(profile)]


def mean_slot_s(types: Sequence[HostType], samples: float) -> float:
    """Return the seconds of a subtask with `samples` samples on a slot of mean speed, or 0 if no speed is known.

    A speed counts as at most _MOST_TIMES the median slot's, because a host may claim any.
    """
    slots = [(one.busy_s(samples), one.count * one.slots) for one in types if one.busy_s(samples) > 0]
    if not slots:
        return 0.0
    # A median over slots: a class of one fast host must not outweigh a hundred usual ones.
    usual_s = statistics.median(busy_s for busy_s, count in slots for _ in range(max(1, round(count))))
    return sum(count for _, count in slots) / sum(count / max(busy_s, usual_s / _MOST_TIMES) for busy_s, count in slots)


def measured_servers(profile: RunProfile, count: int) -> Servers:
    """Return the run's `count` parameter servers with the measured seconds of an upload, for the planner's model."""
    return Servers(max(1, count), profile.total().mean_s(FOLD))


def mean_subtask(sums: StageSums) -> Subtask:
    """Return the size of the mean subtask: its samples, and the bytes of its transfers."""
    count = max(1, sums.subtasks)
    return Subtask(sums.samples / count, sums.bytes_up / count, sums.bytes_down / count)


def planned_work(profile: RunProfile, subtasks: int, subtask: Subtask, shards: int) -> Work:
    """Return the work of a planned job, with start and end times and the uncertainty as in the measured run.

    Args:
        profile: The measured run.
        subtasks: Number of subtasks of the planned job.
        subtask: The size of one.
        shards: Number of its shards.
    """
    first_s = min((host.first_s for host in profile.hosts.values() if host.first_s is not None), default=0.0)
    evaluator_s = profile.first_measured_s or 0.0
    if profile.history.finished:
        # The end of a finished run was measured. Otherwise it is estimated from its evaluations.
        end_s = profile.history.wall_s - max(profile.last_applied_s, evaluator_s)
    else:
        end_s = _FINAL * statistics.median(profile.evaluations_s or [0.0])
    return Work(subtasks, subtask, shards, first_s, end_s, evaluator_s, math.hypot(MODEL_ERROR, _drift(profile)))


def _drift(profile: RunProfile) -> float:
    """Return how much the speed of hosts may change from now on, as a relative standard deviation; 0 if unknown.

    It is σ · √(1 + 1/n), where σ is the deviation of n epochs' mean times from their host's mean.
    """
    count, squares = 0, 0.0  # each epoch's mean divided by its host's mean, so that the average is 1
    for means in profile.steady.values():
        epochs, sum_s, sum_of_squares = means.moments()
        if epochs > 1 and sum_s > 0:
            count += epochs
            squares += sum_of_squares * (epochs / sum_s) ** 2
    variance = max(0.0, squares - count) / max(1, count - 1)
    return (variance * (1.0 + 1.0 / count)) ** 0.5 if count else 0.0
