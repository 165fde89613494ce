"""What a fleet consists of: pools to launch in, and instances; the same words for every cloud."""

from dataclasses import dataclass
from enum import StrEnum

from vcdl.fleet.settings import Cloud, Unit


class State(StrEnum):
    """Where an instance is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    """On its way out, whoever ended it; it does no more work for us."""
    STOPPED = "stopped"
    """Switched off but not deleted (GCP: STOPPED, TERMINATED, SUSPENDED; AWS: stopped): its disk costs; the next pass terminates it."""
    GONE = "gone"
    """Terminated; a cloud shows it for a while (AWS: about an hour) or not at all (GCP)."""


class Ending(StrEnum):
    """Who ended an instance: AWS does not charge an hour that it interrupts, and counts our own endings in full."""

    PREEMPTED = "preempted"
    OURS = "ours"
    UNKNOWN = "unknown"
    """The cloud no longer says, or the machine shut itself down."""


@dataclass(frozen=True, order=True)
class Pool:
    """Where instances of one type come from: their capacity runs out together."""

    cloud: Cloud
    type: str
    region: str
    zone: str = ""
    """Empty while the cloud chooses it."""
    subnet: str = ""
    """AWS: its id; a subnet lies in one zone. Empty on GCP."""

    def __str__(self) -> str:
        """`t3.2xlarge in us-east-1a`."""
        return f"{self.type} in {self.zone or self.region}"


@dataclass(frozen=True)
class InstanceType:
    """What a cloud says of a type."""

    name: str
    vcpus: int
    memory_gb: float
    gpus: int = 0

    def units(self, unit: Unit) -> int:
        """What one instance of it counts for; 0: it has no such thing."""
        return _units(unit, self.vcpus, self.gpus)


@dataclass(frozen=True)
class Instance:
    """A machine that carries the fleet's tag, as the cloud shows it."""

    id: str
    """AWS: i-…; GCP: ZONE/NAME, which is unique within a project."""
    pool: Pool
    """With its zone."""
    vcpus: int
    gpus: int
    state: State
    launched_s: float
    """Unix time, by the cloud's clock."""
    ended_s: float | None = None
    """Of one that is not live: when the cloud ended it, as near as it says."""
    ending: Ending | None = None
    """Of one that is not live."""
    draining_s: float | None = None
    """Unix time from which it is asked to take no more work (vcdl/fleet/drain.py); None: it is not."""

    @property
    def is_live(self) -> bool:
        """Whether it works, or soon will."""
        return self.state in (State.PENDING, State.RUNNING)

    def units(self, unit: Unit) -> int:
        """What it counts for."""
        return _units(unit, self.vcpus, self.gpus)


def _units(unit: Unit, vcpus: int, gpus: int) -> int:
    return {"vcpu": vcpus, "gpu": gpus, "instance": 1}[unit]
