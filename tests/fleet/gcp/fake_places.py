"""The regions and machine types of the fake: some of the real ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REGIONS = {
    "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"),
    "europe-west4": ("europe-west4-a", "europe-west4-b", "europe-west4-c"),
}
"""The regions and their zones."""


@dataclass(frozen=True)
class MachineType:
    """A machine type as machineTypes describes it."""

    vcpus: int
    memory_mb: int
    gpu: str = ""
    """The accelerator that the type comes with."""
    gpus: int = 0
    shared_cpu: bool = False
    architecture: str = "X86_64"
    zones: tuple[str, ...] = ()
    """Empty: all."""


MACHINE_TYPES = {
    "e2-micro": MachineType(2, 1024, shared_cpu=True),
    "e2-standard-4": MachineType(4, 16 * 1024),
    "e2-standard-8": MachineType(8, 32 * 1024),
    "n1-standard-8": MachineType(8, 30 * 1024),
    "n2-standard-8": MachineType(8, 32 * 1024),
    "n2d-standard-8": MachineType(8, 32 * 1024, zones=("us-central1-a", "us-central1-b", "europe-west4-a")),
    "n2-standard-16": MachineType(16, 64 * 1024),
    "n4-standard-8": MachineType(8, 32 * 1024),
    "t2a-standard-8": MachineType(8, 32 * 1024, architecture="ARM64"),
    "g2-standard-8": MachineType(8, 32 * 1024, gpu="nvidia-l4", gpus=1, zones=("us-central1-a", "us-central1-c")),
}


def known_types(body: Mapping[str, Any]) -> list[str]:
    """The machine types that a bulk insert allows, without unknown ones."""
    selections = body.get("instanceFlexibilityPolicy", {}).get("instanceSelections", {})
    asked = [type for selection in selections.values() for type in selection["machineTypes"]]
    return [type for type in asked or [body["instanceProperties"]["machineType"]] if type in MACHINE_TYPES]


def is_offered(type: str, zone: str) -> bool:
    """Whether a zone has machines of a type."""
    return not MACHINE_TYPES[type].zones or zone in MACHINE_TYPES[type].zones


def described(name: str) -> dict[str, Any]:
    """A machine type as the real one describes it."""
    kind = MACHINE_TYPES[name]
    facts: dict[str, Any] = {
        "name": name,
        "guestCpus": kind.vcpus,
        "memoryMb": kind.memory_mb,
        "isSharedCpu": kind.shared_cpu,
        "architecture": kind.architecture,
    }
    if kind.gpus:
        facts["accelerators"] = [{"guestAcceleratorType": kind.gpu, "guestAcceleratorCount": kind.gpus}]
    return facts
