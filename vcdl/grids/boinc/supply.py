"""How much work lies ready for clients to fetch: enough that none goes away empty, little enough that the weights are fresh.

A client that gets nothing backs off for minutes, up to a day; a workunit that lies unsent for long trains from old weights. So the
unsent workunits are kept between two marks that follow what clients fetch until more can be made.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

REFILL_S = 10.0
"""From a low mark that is seen to results that the scheduler can send: our loop, create_work, transitioner and feeder, each a second or two."""
_LEAST_LOW = 2
_FIRST_LOW = 8
"""While nothing runs: a fleet may come all at once, and there are no newer weights to be had anyway."""


@dataclass(frozen=True)
class Demand:
    """What the clients of our app do."""

    running: int
    """Subtasks."""
    idle_hosts: int
    """Heard of lately, without a subtask."""
    task_s: float | None
    """From sent to reported, of late; None: nothing came back yet."""


@dataclass(frozen=True)
class Stock:
    """What there is of a job."""

    unsent: int
    running: int
    """Sent, or back and not assimilated."""


@dataclass(frozen=True)
class Marks:
    """Below `low` unsent workunits, more are made, up to `high`."""

    low: int
    high: int


def marks(demand: Demand) -> Marks:
    """For all jobs together: what is fetched until more can be made, and one for each host that has nothing to do.

    Subtasks end at a rate of running / task_s, independently of each other: of a Poisson number with mean λ, λ + 3·√λ is hardly ever
    exceeded. Until one has come back it is assumed that all may end at once.
    """
    fetched = float(demand.running)
    if demand.task_s is not None:
        mean = demand.running * REFILL_S / max(demand.task_s, 1.0)
        fetched = mean + 3 * math.sqrt(mean)
    least = _LEAST_LOW if demand.running else _FIRST_LOW
    low = max(least, math.ceil(fetched) + demand.idle_hosts)
    return Marks(low, low + math.ceil(low / 2))


@dataclass(frozen=True)
class JobStock:
    """A job that has work open, beside the others."""

    priority: int
    stock: Stock

    @property
    def open(self) -> int:
        return self.stock.unsent + self.stock.running


def open_wanted(job: str, jobs: Mapping[str, JobStock], whole: Marks, others_pass: bool = False) -> int:
    """How many workunits of `job` should be open: those that run, and some unsent.

    Jobs share the clients by priority: each has its part of all that runs and of both marks, and makes work when it has less open than
    up to the low one. A job that has more makes some only when `others_pass`, that is when nobody made any for a while and less than half of the
    low mark lies ready: clients must not go away empty because another job has nothing to give.
    """
    mine, running = jobs[job], sum(other.stock.running for other in jobs.values())
    part = mine.priority / sum(other.priority for other in jobs.values())
    if mine.open < part * (running + whole.low):
        return math.ceil(part * (running + whole.high))
    if others_pass and (missing := missing_to_half(jobs, whole)) > 0:
        return mine.open + missing
    # A mark, not the present number, while there is enough: the caller may not count some of the open ones (superseded), and
    # would otherwise make as many new ones at each call, without end.
    return mine.stock.running + min(mine.stock.unsent, math.ceil(part * whole.low))


def missing_to_half(jobs: Mapping[str, JobStock], whole: Marks) -> int:
    """How many are missing to half of the low mark; 0 or less: none."""
    return math.ceil(whole.low / 2) - sum(job.stock.unsent for job in jobs.values())
