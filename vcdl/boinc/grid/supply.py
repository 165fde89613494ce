"""Compute how much unsent work to keep ready.

The number of unsent workunits moves between two marks. With too few, clients find no work and back off for long; with
too many, the work is sent late and starts from old weights.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

REFILL_S = 10.0
"""Seconds from a low mark until new results can be sent: our loop, create_work, transitioner and feeder."""
_LEAST_LOW = 2
"""Least low mark, so that a small fleet never waits for work."""
_FIRST_LOW = 8
"""Least low mark while nothing runs: a whole fleet may start, and holding work back would not give it newer weights."""


@dataclass(frozen=True)
class Demand:
    """How much work our app's clients use."""

    running: int
    """Subtasks that run on clients."""
    idle_hosts: int
    """Active hosts without a subtask."""
    task_s: float | None
    """Mean seconds from sending to reporting of recent tasks; None: no result is back yet."""


@dataclass(frozen=True)
class Stock:
    """Open workunits of a job."""

    unsent: int
    running: int
    """Workunits that were sent, or returned and not yet assimilated."""
    on_gpus: int = 0
    """Running workunits that a GPU trains now."""


@dataclass(frozen=True)
class Marks:
    """The two marks: when fewer than `low` workunits are unsent, more are created, up to `high`."""

    low: int
    high: int


def marks(demand: Demand) -> Marks:
    """Return the two marks of unsent work, over all jobs, that meet the clients' demand.

    The low mark covers the fetches until new work can be ready, a Poisson variable, by its mean and three standard
    deviations (λ + 3·√λ), and one fetch per idle host.
    """
    # Without a result yet the pace is unknown: assume that each running task ends within a refill.
    fetched = float(demand.running)
    if demand.task_s is not None:
        # Assume at least 1 s per task: a mean near 0 of the first trivial results would ask for thousands of workunits.
        mean = demand.running * REFILL_S / max(demand.task_s, 1.0)
        fetched = mean + 3 * math.sqrt(mean)
    least = _LEAST_LOW if demand.running else _FIRST_LOW
    # Set the high mark half as much higher, so that refills are fewer and larger, without letting work grow old.
    low = max(least, math.ceil(fetched) + demand.idle_hosts)
    return Marks(low, low + math.ceil(low / 2))


@dataclass(frozen=True)
class JobStock:
    """One open job's share of the clients, and its workunits."""

    share: int
    stock: Stock

    @property
    def open(self) -> int:
        return self.stock.unsent + self.stock.running


def target_open_workunits(job: str, jobs: Mapping[str, JobStock], whole: Marks, others_pass: bool = False) -> int:
    """Return how many workunits of a job should be open (unsent or running), by its share of the clients.

    Args:
        job: The job.
        jobs: All open jobs, with that one.
        whole: The marks over all jobs.
        others_pass: Whether unsent work has been short for so long that the other jobs evidently create none. Then the
            job fills the gap beyond its share.
    """
    mine, running = jobs[job], sum(other.stock.running for other in jobs.values())
    part = mine.share / sum(other.share for other in jobs.values())
    # Count running workunits too; otherwise a job with long tasks would occupy more clients than its share.
    if mine.open < part * (running + whole.low):
        return math.ceil(part * (running + whole.high))
    if others_pass and (missing := missing_to_half(jobs, whole)) > 0:
        return mine.open + missing
    # With enough work, return a mark, not the present number: the caller may not count some open ones
    # (superseded), and would create as many new ones at each call, without end.
    return mine.stock.running + min(mine.stock.unsent, math.ceil(part * whole.low))


def missing_to_half(jobs: Mapping[str, JobStock], whole: Marks) -> int:
    """Return how many workunits are missing to half of the low mark; 0 or less: none."""
    return math.ceil(whole.low / 2) - sum(job.stock.unsent for job in jobs.values())


def missing_running(job: str, jobs: Mapping[str, JobStock]) -> int:
    """Return how many workunits of `job` to send before all others, so that its share of the clients runs them."""
    mine, running = jobs[job], sum(other.stock.running for other in jobs.values())
    part = mine.share / sum(other.share for other in jobs.values())
    return max(0, math.ceil(part * running) - mine.open)
