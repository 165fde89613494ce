"""Describe pools and instances of a fleet, independently of the cloud."""

from dataclasses import dataclass, replace
from enum import StrEnum

from vcdl.fleet.settings import Cloud, Unit


class InstanceState(StrEnum):
    """The stage of an instance's life."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    """Shutting down; it does no more work."""
    STOPPED = "stopped"
    """Switched off but not deleted (as GCP's STOPPED, TERMINATED, SUSPENDED): the next pass terminates it."""
    GONE = "gone"
    """Terminated. AWS shows such an instance for about an hour, GCP does not show it."""

    @property
    def is_live(self) -> bool:
        """Whether an instance in this state works, or soon will."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


class Ending(StrEnum):
    """The cause of an instance's end.

    AWS charges nothing for a first hour that it interrupts itself.
    """

    PREEMPTED = "preempted"
    OURS = "ours"
    GAVE_UP = "gave_up"
    """The machine powered itself off although its lease was not over: it had no work."""
    SILENT = "silent"
    """Terminated by us, because its agent had never sent a sign of life."""
    UNKNOWN = "unknown"
    """The cloud no longer lists the instance."""


@dataclass(frozen=True, order=True)
class Pool:
    """A type in one zone, from which instances are launched; their capacity runs out together."""

    cloud: Cloud
    type: str
    region: str
    zone: str = ""
    """Name of the zone, or an empty string while the cloud has not chosen one."""
    subnet: str = ""
    """AWS: the subnet's id; a subnet belongs to one zone. Empty on GCP."""
    on_demand: bool = False
    """Whether instances are sold at the list price and never preempted."""

    @property
    def as_spot(self) -> "Pool":
        """The same pool's preemptible instances."""
        return replace(self, on_demand=False)

    def __str__(self) -> str:
        """`t3.2xlarge in us-east-1a`."""
        return f"{self.type} in {self.zone or self.region}{' on demand' if self.on_demand else ''}"


@dataclass(frozen=True)
class InstanceType:
    """A machine type, as its cloud describes it."""

    name: str
    vcpus: int
    memory_gb: float
    gpus: int = 0
    share: float = 1.0
    """Fraction of each vCPU that the type may use all the time; below 1 for a burstable type."""

    @property
    def working_vcpus(self) -> int:
        """Number of whole vCPUs that the type can use all the time."""
        return max(min(1, self.vcpus), int(self.vcpus * self.share))

    def units(self, unit: Unit) -> int:
        """Return the units of one instance, or 0 if the type provides none."""
        return {"vcpu": self.working_vcpus, "gpu": self.gpus, "instance": 1}[unit]


@dataclass(frozen=True)
class Instance:
    """A machine with the fleet's tag, as the cloud shows it."""

    id: str
    """AWS: i-…; GCP: ZONE/NAME, which is unique within a project."""
    pool: Pool
    """Pool of the instance, with its zone."""
    vcpus: int
    """Number of vCPUs; of a burstable type those that it may use all the time."""
    gpus: int
    state: InstanceState
    launched_s: float
    """Unix time, by the cloud's clock."""
    ended_s: float | None = None
    """Unix time of the end, as precisely as the cloud reports it, or None while the instance is live."""
    ending: Ending | None = None
    """The cause of the end, or None while the instance is live."""
    until_s: float | None = None
    """Unix time at which its lease ends (vcdl/fleet/reconciler.py), or None if unknown."""
    keeper: str = ""
    """The keeper that wrote the lease, or an empty string if there is none or an older version of vcdl wrote it."""
    draining_s: float | None = None
    """Unix time since which the instance accepts no more work because its lease is over, or None if it accepts work."""
    is_assumed: bool = False
    """Whether the instance's region is unreachable: it most likely lives, but cannot be managed."""

    @property
    def is_live(self) -> bool:
        """Whether the instance works, or soon will."""
        return self.state.is_live

    def at(self, now_s: float) -> "Instance":
        """Return the instance as it is at that time, draining if its lease is over."""
        is_over = self.is_live and self.until_s is not None and self.until_s <= now_s
        return replace(self, draining_s=self.until_s) if is_over else self

    @property
    def is_capacity(self) -> bool:
        """Whether the instance is live and not draining."""
        return self.is_live and self.draining_s is None

    def units(self, unit: Unit) -> int:
        """Return the instance's size in these units."""
        return {"vcpu": self.vcpus, "gpu": self.gpus, "instance": 1}[unit]
