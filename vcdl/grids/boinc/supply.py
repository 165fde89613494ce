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


def share(whole: Marks, job: str, priorities: Mapping[str, int]) -> Marks:
    """A job's part, by its priority among the jobs that have work open; the scheduler sends in the order of creation."""
    others = sum(priority for other, priority in priorities.items() if other != job)
    part = priorities[job] / (priorities[job] + others)
    low = max(1, math.ceil(whole.low * part))
    return Marks(low, max(low + 1, math.ceil(whole.high * part)))


def open_wanted(stock: Stock, part: Marks) -> int:
    """How many workunits should be open: those that run, and up to one of the two marks unsent.

    The low mark, not the present number, while there is enough: the caller may not count some of the open ones (superseded), and
    would otherwise make as many new ones at each call, without end.
    """
    return stock.running + (part.high if stock.unsent < part.low else part.low)
