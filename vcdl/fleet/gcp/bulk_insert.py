"""The requests of regional bulk inserts, and the groups of pools that one request can cover.

A bulk insert counts machines, not vCPUs, and starts them all from one kind of disk. So a group's types all count the
same, and each of them is wanted in each zone of the group. Compute Engine chooses among them.
"""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcdl.fleet.gcp.catalogue import MachineName
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.machine import compressed
from vcdl.fleet.provider import FLEET_TAG, LAUNCH_TAG, LEASE_TAG
from vcdl.fleet.settings import FleetSettings, Unit

MAX_MACHINES = 1000
"""Compute Engine's limit for one bulk insert."""

_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
"""Ubuntu 24.04, whose cloud-init reads `user-data` from the machine's metadata."""
_NAMESPACE = uuid.UUID("0d3f1f5e-5a0e-4c2b-9b6c-6d2f6a3f7f10")
_SPOT = {"provisioning_model": "SPOT", "preemption_notice_duration": {"seconds": 120}}
"""Without the duration a machine has the 30 s of its shutdown alone."""
_MAX_NAME = 40
"""Characters of the fleet's name in a machine's, which has at most 63."""


@dataclass(frozen=True)
class Group:
    """Pools that one bulk insert asks for."""

    region: str
    zones: tuple[str, ...]
    types: tuple[str, ...]
    units_each: int
    """Units of one machine."""
    boot_disk_type: str
    on_demand: bool
    gpu: str = ""
    """A GPU that is added to the machine type."""
    gpus: int = 0

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of the group."""
        return tuple(
            Pool("gcp", type, self.region, zone, on_demand=self.on_demand) for type in self.types for zone in self.zones
        )


def groups(pools: Sequence[Pool], types: Mapping[Pool, InstanceType], unit: Unit) -> tuple[Group, ...]:
    """The pools with such units, in as few groups as possible.

    Regions keep their order. In a region the groups with most pools come first: the more Compute Engine can choose
    from, the fewer preemptions.
    """
    zones: dict[tuple[str, str, bool], list[str]] = {}
    for pool in pools:
        zones.setdefault((pool.region, pool.type, pool.on_demand), []).append(pool.zone)
    together: dict[Group, list[str]] = {}
    for (region, type, on_demand), in_zones in zones.items():
        name = MachineName.parse(type)
        units_each = types[Pool("gcp", type, region, in_zones[0])].units(unit)
        if units_each:
            # Compute Engine chooses among types only for machines without added GPUs: others are groups of their own.
            alone = (type,) if name.gpu else ()
            alike = Group(
                region=region,
                zones=tuple(sorted(in_zones)),
                types=alone,
                units_each=units_each,
                boot_disk_type=name.boot_disk_type,
                on_demand=on_demand,
                gpu=name.gpu,
                gpus=name.gpus,
            )
            together.setdefault(alike, []).append(type)
    found = [replace(alike, types=tuple(names)) for alike, names in together.items()]
    regions = list(dict.fromkeys(pool.region for pool in pools))
    return tuple(sorted(found, key=lambda group: (regions.index(group.region), -len(group.pools))))


def request_id(group: Group, count: int, token: str) -> str:
    """An id that is the same for the same launch, so that a repeated request is performed once."""
    return str(uuid.uuid5(_NAMESPACE, f"{token} {group.region} {group.zones} {group.types} {count}"))


def metadata_items(user_data: str, until_s: float | None = None) -> list[dict[str, str]]:
    """User data as cloud-init reads it from the metadata, the bytes that AWS gets, as base64; and the lease."""
    text = base64.b64encode(compressed(user_data)).decode("ascii")
    lease = [] if until_s is None else [{"key": LEASE_TAG, "value": str(int(until_s))}]
    return [{"key": "user-data", "value": text}, {"key": "user-data-encoding", "value": "base64"}, *lease]


def body(
    group: Group,
    count: int,
    token: str,
    items: Sequence[Mapping[str, str]],
    settings: FleetSettings,
    denied: Sequence[str],
) -> dict[str, Any]:
    """The BulkInsertInstanceResource for up to `count` machines. `denied`: the region's zones that are not the group's.

    With `min_count` 1 a part of the machines is kept. A preempted machine is deleted, not stopped. Without a service
    account nothing that runs on a machine has rights in the cloud.
    """
    labels = {**settings.tags, FLEET_TAG: settings.name, LAUNCH_TAG: token}
    short = uuid.uuid5(_NAMESPACE, request_id(group, count, token)).hex[:8]
    properties: dict[str, Any] = {
        "labels": labels,
        "metadata": {"items": list(items)},
        "scheduling": {
            **({"provisioning_model": "STANDARD"} if group.on_demand else _SPOT),
            "instance_termination_action": "DELETE",
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": False,
            # The last resort, by the cloud itself: it deletes the machine some time after it should have drained.
            "max_run_duration": {"seconds": settings.max_life_h * 3600 + settings.drain_s + 600},
        },
        "disks": [_boot_disk(group, settings, labels)],
        "tags": {"items": [FLEET_TAG]},  # for firewall rules
        "network_interfaces": [_interface(group.region, settings)],
    }
    if group.gpu:
        properties["guest_accelerators"] = [{"accelerator_type": group.gpu, "accelerator_count": group.gpus}]
    machines = [MachineName.parse(type).machine for type in group.types]
    flexible = {"instance_selections": {"any": {"machine_types": machines}}}
    only = {"machine_type": machines[0]}
    return {
        "count": count,
        "min_count": 1,
        "name_pattern": f"vcdl-{settings.name[:_MAX_NAME].replace('_', '-')}-{short}-####",
        # A zone that is not mentioned is allowed. ANY takes any zone with capacity; the default is one zone for all.
        "location_policy": {
            "target_shape": "ANY",
            "locations": {
                **{f"zones/{zone}": {"preference": "ALLOW"} for zone in group.zones},
                **{f"zones/{zone}": {"preference": "DENY"} for zone in denied},
            },
        },
        "instance_properties": {**properties, **(only if len(machines) == 1 else {})},
        **({"instance_flexibility_policy": flexible} if len(machines) > 1 else {}),
    }


def _interface(region: str, settings: FleetSettings) -> dict[str, Any]:
    place = next(place for place in settings.places if place.region == region)
    subnet, network = next(iter(place.subnets), None), place.network
    if network or not subnet:
        network = network or "default"
        network = network if "/" in network else f"global/networks/{network}"
    nat = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}] if settings.public_address else []
    interface: dict[str, Any] = {"access_configs": nat}
    if network:
        interface["network"] = network
    if subnet:
        interface["subnetwork"] = subnet if "/" in subnet else f"regions/{region}/subnetworks/{subnet}"
    return interface


def _boot_disk(group: Group, settings: FleetSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "boot": True,
        "auto_delete": True,
        "initialize_params": {
            "source_image": settings.image_in(group.region) or _IMAGE,
            "disk_size_gb": settings.disk_gb,
            "disk_type": group.boot_disk_type,
            "labels": dict(labels),
        },
    }
