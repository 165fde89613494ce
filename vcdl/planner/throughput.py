"""Compute the speed of a job in subtasks a second: X = min(Σ hosts, servers · capacity).

The model is that of Li, Walls, Guo (ICDCS 2020), without the link.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FURTHER_SERVER = 0.7
"""Capacity of each further parameter server relative to the first, because two servers handled 1.68 and 1.71 times as
much as one in CM-DARE's raw data."""


@dataclass(frozen=True)
class HostType:
    """Hosts of one kind, with their number and speed.

    Do not estimate one type from another: the published errors of that are 38 to 48 %.
    """

    name: str
    count: float
    fixed_s: float
    """Seconds of a subtask on its slot that do not depend on its size: start, inputs, first batch, output."""
    sample_s: float
    """Seconds of a sample on a slot."""
    away_s: float = 0.0
    """Seconds of a subtask's transfers, down and up."""
    slots: float = 1.0
    """Number of subtasks that one host trains at a time."""
    at_once: float = 1.0
    """Number of subtasks that one host has at a time, including those in transfer."""
    once_s: float = 0.0
    """Seconds that a slot needs once, before its first subtask, to build and compile the model. 0 if each subtask has a
    process of its own, because `fixed_s` then includes them."""

    def busy_s(self, samples: float) -> float:
        """Return the seconds for which a subtask of `samples` samples occupies its slot."""
        return self.fixed_s + self.sample_s * samples

    def subtasks_per_s(self, samples: float) -> float:
        """Return how many subtasks of `samples` samples all these hosts together train in a second."""
        busy_s = max(self.busy_s(samples), 1e-9)
        # Either the slots are always busy, or the host has too few subtasks at a time to hide their transfers.
        return self.count * min(self.slots / busy_s, self.at_once / (busy_s + self.away_s))


@dataclass(frozen=True)
class Servers:
    """The parameter servers, by number and speed."""

    count: int = 1
    fold_s: float = 0.0
    """Seconds that one server needs to apply an upload; 0 if it does not limit the speed."""

    @property
    def capacity_per_s(self) -> float:
        """How many uploads all servers together apply in a second; infinite if `fold_s` is 0."""
        return (1.0 + FURTHER_SERVER * (self.count - 1)) / self.fold_s if self.fold_s > 0 else math.inf


@dataclass(frozen=True)
class Subtask:
    """The size of a subtask."""

    samples: float
    """Number of samples that are trained, over all local epochs."""
    bytes_up: float = 0.0
    bytes_down: float = 0.0


@dataclass(frozen=True)
class Throughput:
    """The speed of hosts and servers together."""

    subtasks_per_s: float
    samples_per_s: float
    limit: str
    """The part that limits it: `hosts` or `servers`."""
    staleness: float
    """Mean number of other updates that are applied between a subtask's base version and its own update."""


def throughput(hosts: Sequence[HostType], servers: Servers, subtask: Subtask) -> Throughput:
    """Return the throughput of hosts and servers for subtasks of one size."""
    rate, limit = sum(host.subtasks_per_s(subtask.samples) for host in hosts), "hosts"
    if servers.capacity_per_s < rate:
        rate, limit = servers.capacity_per_s, "servers"
    in_flight = sum(host.count * host.at_once for host in hosts)
    return Throughput(rate, rate * subtask.samples, limit, max(0.0, in_flight - 1.0) if rate else 0.0)
