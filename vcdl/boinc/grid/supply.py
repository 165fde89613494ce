"""The amount of unsent work, between two marks: without work clients back off for long; work that waits grows old."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

REFILL_S = 10.0
"""Seconds from a low mark until new results can be sent: our loop, create_work, transitioner and feeder."""
_LEAST_LOW = 2
"""The least low mark, so that a small fleet never waits."""
_FIRST_LOW = 8
"""The least low mark while nothing runs: a fleet may come at once, and waiting would bring no newer weights."""


@dataclass(frozen=True)
class Demand:
    """The activity of our app's clients."""

    running: int
    """Subtasks at work."""
    idle_hosts: int
    """Active hosts without a subtask."""
    task_s: float | None
    """Recent mean time from sending to reporting; None: no result came back yet."""


@dataclass(frozen=True)
class Stock:
    """Open workunits of a job."""

    unsent: int
    running: int
    """Sent, or returned and not assimilated."""
    on_gpus: int = 0
    """Running workunits that a GPU trains now."""


@dataclass(frozen=True)
class Marks:
    """When fewer than `low` workunits are unsent, more are made, up to `high`."""

    low: int
    high: int


def marks(demand: Demand) -> Marks:
    """Return the marks over all jobs: fetches until more is made (Poisson λ + 3·√λ), one per idle host."""
    # Before the first result is back nothing is known of the pace: assume that each running task ends within a refill.
    fetched = float(demand.running)
    if demand.task_s is not None:
        # At least 1 s a task: a mean near 0 of the first trivial results would ask for thousands of workunits.
        mean = demand.running * REFILL_S / max(demand.task_s, 1.0)
        fetched = mean + 3 * math.sqrt(mean)
    least = _LEAST_LOW if demand.running else _FIRST_LOW
    # Half as much again up to the high mark: refills are then fewer and larger, without letting work grow old.
    low = max(least, math.ceil(fetched) + demand.idle_hosts)
    return Marks(low, low + math.ceil(low / 2))


@dataclass(frozen=True)
class JobStock:
    """An open job's share of the clients, and its stock."""

    share: int
    stock: Stock

    @property
    def open(self) -> int:
        return self.stock.unsent + self.stock.running


def open_wanted(job: str, jobs: Mapping[str, JobStock], whole: Marks, others_pass: bool = False) -> int:
    """Return the workunits of `job` that should be open: its share; more when `others_pass` and little is unsent."""
    mine, running = jobs[job], sum(other.stock.running for other in jobs.values())
    part = mine.share / sum(other.share for other in jobs.values())
    # What runs counts too: otherwise a job whose tasks take long would hold more clients than its share.
    if mine.open < part * (running + whole.low):
        return math.ceil(part * (running + whole.high))
    if others_pass and (missing := missing_to_half(jobs, whole)) > 0:
        return mine.open + missing
    # With enough work, return a mark, not the present number: the caller may not count some open ones
    # (superseded), and would create as many new ones at each call, without end.
    return mine.stock.running + min(mine.stock.unsent, math.ceil(part * whole.low))


def missing_to_half(jobs: Mapping[str, JobStock], whole: Marks) -> int:
    """Workunits missing to half of the low mark; 0 or less: none."""
    return math.ceil(whole.low / 2) - sum(job.stock.unsent for job in jobs.values())


def missing_running(job: str, jobs: Mapping[str, JobStock]) -> int:
    """Workunits of `job` to send before all that wait, until the job has its part of those that run."""
    mine, running = jobs[job], sum(other.stock.running for other in jobs.values())
    part = mine.share / sum(other.share for other in jobs.values())
    return max(0, math.ceil(part * running) - mine.open)
