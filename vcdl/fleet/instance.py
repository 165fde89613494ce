"""Describe pools and instances of a fleet, independently of the cloud."""

from dataclasses import dataclass, replace
from enum import StrEnum

from vcdl.fleet.settings import Cloud, Unit


class InstanceState(StrEnum):
    """The stage of an instance's life."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    """The instance is shutting down, and does no more work."""
    STOPPED = "stopped"
    """Switched off but not deleted (as GCP's STOPPED, TERMINATED, SUSPENDED): the next pass terminates it."""
    GONE = "gone"
    """Deleted. AWS lists such an instance for about an hour; on GCP only this process remembers it."""

    @property
    def is_live(self) -> bool:
        """Whether an instance in this state works, or soon will."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


class Ending(StrEnum):
    """The cause of an instance's end, which decides about its cost and about the crash loop."""

    PREEMPTED = "preempted"
    """The cloud took it back. AWS charges nothing if that is within the first hour."""
    OURS = "ours"
    """The fleet terminated it, or it powered itself off after its lease."""
    GAVE_UP = "gave_up"
    """The machine powered itself off although its lease was not over: it had no work."""
    SILENT = "silent"
    """The fleet terminated it, because its agent had never shown a sign of life."""
    UNKNOWN = "unknown"
    """The cloud does not say: for example, it no longer lists the instance."""


@dataclass(frozen=True, order=True)
class Pool:
    """A machine type in one zone and one market, from which instances are launched; its capacity runs out as a whole.

    Pools are ordered by their fields, so that all processes sort them equally.
    """

    cloud: Cloud
    type: str
    region: str
    zone: str = ""
    """Name of the zone, or an empty string while the cloud has not chosen one."""
    subnet: str = ""
    """AWS: the subnet's id; a subnet belongs to one zone. Empty on GCP."""
    on_demand: bool = False
    """Whether its instances cost the list price and are never preempted."""

    @property
    def as_spot(self) -> "Pool":
        """The pool of preemptible instances of this type in this zone."""
        return replace(self, on_demand=False)

    def __str__(self) -> str:
        """Return a text such as `t3.2xlarge in us-east-1a`."""
        return f"{self.type} in {self.zone or self.region}{' on demand' if self.on_demand else ''}"


@dataclass(frozen=True)
class InstanceType:
    """A machine type with its size, as its cloud describes it."""

    name: str
    vcpus: int
    memory_gb: float
    gpus: int = 0
    share: float = 1.0
    """Fraction of each vCPU that the type may use all the time; below 1 for a burstable type."""

    @property
    def working_vcpus(self) -> int:
        """Number of whole vCPUs that the type can use all the time, at least 1 if it has any."""
        return max(min(1, self.vcpus), int(self.vcpus * self.share))

    def units(self, unit: Unit) -> int:
        """Return how many units of capacity one instance provides, or 0 if the type provides none."""
        return {"vcpu": self.working_vcpus, "gpu": self.gpus, "instance": 1}[unit]


@dataclass(frozen=True)
class Instance:
    """A machine with the fleet's tag, as the cloud shows it."""

    id: str
    """AWS: i-…; GCP: ZONE/NAME, which is unique within a project."""
    pool: Pool
    """Pool from which it was launched, with the zone in which it is."""
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
    """Name of the fleet folder that wrote the lease (`FleetFolder.keeper`), or an empty string if unknown."""
    draining_s: float | None = None
    """Unix time since which the instance accepts no more work because its lease is over, or None if it accepts work."""
    is_assumed: bool = False
    """Whether the cloud did not show the instance in its last answer, because it was just launched or its region is
    unreachable: it most likely lives, but cannot be managed."""

    @property
    def is_live(self) -> bool:
        """Whether the instance works, or soon will."""
        return self.state.is_live

    def at(self, now_s: float) -> "Instance":
        """Return the instance with `draining_s` set if its lease is over at a Unix time, otherwise unchanged."""
        is_over = self.is_live and self.until_s is not None and self.until_s <= now_s
        return replace(self, draining_s=self.until_s) if is_over else self

    @property
    def is_capacity(self) -> bool:
        """Whether the instance counts as capacity: it is live and not draining."""
        return self.is_live and self.draining_s is None

    def units(self, unit: Unit) -> int:
        """Return how many units of capacity the instance provides."""
        return {"vcpu": self.vcpus, "gpu": self.gpus, "instance": 1}[unit]
