"""What a measurement of the load found, and which stage of the server it names as full."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.boinc_load.backlogs import STAGES, Backlogs
from benchmarks.boinc_load.processes import BENCH

_FULL = 0.95
"""Share of the machine's processor time above which the processors are what is full."""
_IDLE = 0.1
"""Share of the hosts' time without work above which the supply is too small."""
_LONG_S = 10.0
"""Time at a stage above which it is what delays."""


@dataclass(frozen=True)
class Load:
    """The load to put on a server."""

    hosts: int
    duration_s: float
    train_s: float
    """Mean time that a host takes to train."""
    ramp_s: float
    """The hosts come one after the other within this time, which is not measured."""


@dataclass(frozen=True)
class Spread:
    """How long something took: the middle, and what one of twenty exceeds."""

    median_s: float
    p95_s: float
    times: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        if not seconds:
            return cls(0.0, 0.0, 0)
        ordered = sorted(seconds)
        return cls(
            round(statistics.median(ordered), 3), round(ordered[int(0.95 * (len(ordered) - 1))], 3), len(ordered)
        )


@dataclass(frozen=True)
class Share:
    """A process of the server during the measurement."""

    cpu_ms_per_subtask: float
    cores: float
    memory_mb: float


@dataclass(frozen=True)
class LoadResult:
    """The result of a measurement."""

    hosts: int
    duration_s: float
    train_s: float
    subtasks: int
    subtasks_per_s: float
    latency: dict[str, Spread]
    backlog: dict[str, float]
    """Workunits or results that waited, on average, by stage."""
    shares: dict[str, Share]
    machine: float
    """Share of this machine's processor time in use, by this server or others."""
    without_work: float
    """Share of the hosts' time."""
    in_vain: dict[str, int]
    """The most frequent words of the scheduler when it had no work, and how often it said them."""
    full: str
    """The stage that limits, in words."""
    lost: int
    """Subtasks that a host has reported, that the journal does not know, and that wait nowhere."""
    waiting: int
    """Subtasks that a host has reported, and that still wait for validator or assimilator at the end."""
    doubled: int
    """Versions of the weights beyond one for each applied subtask."""
    refused: int
    errors: int
    first_errors: tuple[str, ...]
    update_bytes: int
    growth: dict[str, float]
    """What a thousand subtasks added."""
    away: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def full_stage(
    backlogs: Backlogs,
    subtasks_per_s: float,
    without_work: float,
    machine: float,
    cores: int,
    shares: Mapping[str, Share],
) -> str:
    """The stage that limits, in words; `machine`: the share in use of the time of this machine's `cores`.

    By Little's law the mean time at a stage is its mean backlog divided by the rate. A machine without a free
    processor slows all stages alike, so its largest user is named first.
    """
    rate = max(subtasks_per_s, 1e-9)
    slowest = max(STAGES, key=backlogs.mean)
    waits_s = backlogs.mean(slowest) / rate
    if machine > _FULL:
        users = sorted(shares, key=lambda name: -shares[name].cores)
        most = ", ".join(f"{name} {shares[name].cores:.2f}" for name in users[:3])
        others = machine * cores - sum(share.cores for share in shares.values())
        return f"the processors (cores in use: {most}; by other programs of this machine: {others:.2f})"
    if waits_s > _LONG_S:
        return f"{slowest}: {backlogs.mean(slowest):.0f} wait there, {waits_s:.0f} s each"
    if without_work > _IDLE:
        if backlogs.mean("unsent") < 1 + 2 * rate:
            return "the work generator: nothing is unsent while hosts ask"
        return "the feeder's slots: hosts ask in vain while results are unsent"
    return "none: the hosts are at work, and no stage has a queue"


def lines_of(result: LoadResult) -> Iterator[str]:
    """The result as lines for a person."""
    yield (
        f"{result.subtasks_per_s:.1f} subtasks/s end to end: {result.subtasks} in {result.duration_s:.0f} s, "
        f"{result.hosts} hosts that train {result.train_s:g} s, updates of {result.update_bytes / 1e3:.0f} kB"
    )
    yield (
        f"lost {result.lost}, still waiting {result.waiting}, doubled {result.doubled}, refused {result.refused}, "
        f"errors {result.errors}"
    )
    yield f"full: {result.full}"
    yield f"{result.machine:.0%} of this machine's processors in use; hosts without work {result.without_work:.0%}"
    yield ""
    yield f"{'latency, s':<24}{'median':>10}{'95 %':>10}{'times':>10}"
    for stage, spread in result.latency.items():
        yield f"{stage:<24}{spread.median_s:>10.2f}{spread.p95_s:>10.2f}{spread.times:>10}"
    yield ""
    yield f"{'waiting, mean':<24}{'number':>10}"
    for stage, number in result.backlog.items():
        yield f"{stage:<24}{number:>10.1f}"
    yield ""
    yield f"{'process':<24}{'cores':>10}{'ms/subtask':>12}{'MB':>10}"
    for name, share in sorted(result.shares.items(), key=lambda item: -item[1].cores):
        own = " (not the server's)" if name == BENCH else ""
        yield f"{name:<24}{share.cores:>10.2f}{share.cpu_ms_per_subtask:>12.1f}{share.memory_mb:>10.0f}{own}"
    yield ""
    yield "a thousand subtasks added"
    for what, amount in result.growth.items():
        yield f"{what:<24}{amount:>10.1f}"
    for words, times in result.in_vain.items():
        yield f"no work, {times} times: {words}"
    for error in result.first_errors:
        yield f"error: {error}"
