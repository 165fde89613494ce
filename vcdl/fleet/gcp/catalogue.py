"""Query Compute Engine's zones and machine types.

A type is named as in a fleet file: GPUs that are added to an N1 machine follow the machine's name, as in
`n1-standard-8+2xnvidia-tesla-t4`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.gcp.connection import NOT_FOUND, Connection
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.refusal import unless
from vcdl.fleet.settings import FleetSettings

_NAME = re.compile(r"(?P<machine>[a-z0-9-]+)(\+((?P<count>[1-9])x)?(?P<gpu>[a-z][a-z0-9-]*))?")
_ONLY_HYPERDISK = ("c4", "c4a", "c4d", "n4", "n4a", "n4d", "h4d", "m4", "x4", "a4", "a4x", "g4")
"""Series that cannot boot from a persistent disk."""


@dataclass(frozen=True)
class MachineName:
    """The parts of a type's name in a fleet file."""

    machine: str
    """Compute Engine's name of the machine type, without added GPUs."""
    gpu: str = ""
    """Name of the added GPUs, or an empty string if there are none."""
    gpus: int = 0
    """Number of added GPUs."""

    @classmethod
    def parse(cls, name: str) -> "MachineName":
        """Parse a type's name in a fleet file.

        Raises:
            FleetError: The name is malformed.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            raise FleetError(
                f"instances > types: {name!r} is not a machine type of Compute Engine; "
                "expected one such as n2-standard-8 or n1-standard-8+nvidia-tesla-t4"
            )
        gpu = found["gpu"] or ""
        return cls(found["machine"], gpu, int(found["count"] or 1) if gpu else 0)

    @property
    def boot_disk_type(self) -> str:
        """Type of the boot disk, the cheapest that is not slow: `pd-balanced`, or `hyperdisk-balanced` if needed."""
        return "hyperdisk-balanced" if self.machine.split("-")[0] in _ONLY_HYPERDISK else "pd-balanced"


class MachineCatalogue:
    """Queries the zones of regions and the machine types in them, each only once in the life of the object."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._zones: dict[str, tuple[str, ...]] = {}
        self._types: dict[tuple[str, str], InstanceType | None] = {}

    def zones(self, region: str) -> tuple[str, ...]:
        """Return the names of all zones of a region, sorted.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
            FleetError: The region is unknown.
        """
        if region not in self._zones:
            answer = self._get_or_none("regions.get", region=region)
            if answer is None:
                raise FleetError(
                    f"places > region: Compute Engine has no region {region}; expected one such as us-central1"
                )
            self._zones[region] = tuple(sorted(url.rsplit("/", 1)[-1] for url in answer.zones))
        return self._zones[region]

    def type(self, zone: str, name: str) -> InstanceType | None:
        """Return the size of a type in a zone, or None if the zone does not offer it.

        Args:
            zone: The zone.
            name: The type's name in a fleet file.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        if (zone, name) not in self._types:
            parsed = MachineName.parse(name)
            # Ask for the machine without added GPUs: Compute Engine knows no type with them.
            described = self._get_or_none("machine_types.get", zone=zone, machine_type=parsed.machine)
            self._types[zone, name] = None if described is None else _instance_type(described, name, parsed.gpus)
        return self._types[zone, name]

    def pools(self, region: str, settings: FleetSettings) -> Mapping[Pool, InstanceType]:
        """Return the pools of a region: each type that the fleet file allows, in each of its zones that offers it.

        Raises:
            CloudRefusal: Compute Engine refuses a call, or cannot be reached.
            FleetError: The region or a zone is unknown, or a type's name is malformed.
        """
        known, places = self.zones(region), [place for place in settings.places if place.region == region]
        zones = dict.fromkeys(zone for place in places for zone in place.zones or known)
        if unknown := [zone for zone in zones if zone not in known]:
            raise FleetError(f"places > zones: {region} has no zone {', '.join(unknown)}; it has {', '.join(known)}")
        return {
            Pool("gcp", type.name, region, zone): type for zone in zones for type in self._allowed_types(zone, settings)
        }

    def _allowed_types(self, zone: str, settings: FleetSettings) -> list[InstanceType]:
        requirements = settings.instances.requirements
        if requirements is None:
            asked = [self.type(zone, name) for name in settings.instances.types]
            return [type for type in asked if type is not None]
        allowed = []
        for described in self._connection.list_all("machine_types.list", zone=zone):
            type = _instance_type(described, described.name)
            # Leave out shared cores, which are throttled, and ARM, for which there is no image and no client.
            fits = not described.is_shared_cpu and described.architecture != "ARM64"
            if fits and requirements.met_by(type.vcpus, type.memory_gb, type.gpus):
                allowed.append(type)
                # Keep the description from the list, so that `type` needs no further call.
                self._types[zone, type.name] = type
        return allowed

    def _get_or_none(self, method: str, **which: str) -> Any:
        """Call a `get` method, and return the resource, or None if nothing has that name."""
        with unless(NOT_FOUND):
            return self._connection.call(method, **which)
        return None


def type_of(instance: Any) -> str:
    """Return the type of a machine as a fleet file names it, such as `n1-standard-8+2xnvidia-tesla-t4`.

    Only N1 machines have added GPUs. For other types Compute Engine lists the type's own GPUs in the same field.
    """
    machine = str(instance.machine_type.rsplit("/", 1)[-1])
    for added in instance.guest_accelerators if machine.startswith("n1-") else ():
        count = "" if added.accelerator_count == 1 else f"{added.accelerator_count}x"
        return f"{machine}+{count}{added.accelerator_type.rsplit('/', 1)[-1]}"
    return machine


def _instance_type(described: Any, name: str, added_gpus: int = 0) -> InstanceType:
    own_gpus = sum(one.guest_accelerator_count for one in described.accelerators)
    return InstanceType(name, described.guest_cpus, described.memory_mb / 1024, own_gpus + added_gpus)
