"""Regional bulk inserts: which pools can be asked for together, and what is asked. No template is kept in the cloud.

One bulk insert counts machines, not vCPUs, and starts them all from one kind of disk: pools are asked together when their types
count the same, and when every type of the group is wanted in every zone of the group. Compute Engine then chooses among them.
"""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcdl.fleet.gcp.machines import MachineName
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.machine import compressed
from vcdl.fleet.provider import FLEET_TAG
from vcdl.fleet.settings import FleetSettings, Unit

LAUNCH_LABEL = "vcdl-launch"
"""Its value is the token of the launch."""
MOST_MACHINES = 1000
"""Of one bulk insert."""

_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
"""Ubuntu 24.04, which reads cloud-init's `user-data` from the machine's metadata."""
_NAMESPACE = uuid.UUID("0d3f1f5e-5a0e-4c2b-9b6c-6d2f6a3f7f10")
_LONGEST_NAME = 40
"""Of the fleet's, in a machine's: the whole has at most 63 characters."""


@dataclass(frozen=True)
class Group:
    """Pools that one bulk insert asks for."""

    region: str
    zones: tuple[str, ...]
    types: tuple[str, ...]
    units_each: int
    """What one machine of it counts for."""
    boot_disk_type: str
    gpu: str = ""
    """A GPU that is added to the machine type."""
    gpus: int = 0

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All of them."""
        return tuple(Pool("gcp", type, self.region, zone) for type in self.types for zone in self.zones)


def groups(pools: Sequence[Pool], types: Mapping[Pool, InstanceType], unit: Unit) -> tuple[Group, ...]:
    """The pools in as few groups as can be, those with most pools first: the more to choose from, the fewer preemptions.

    Without the pools that count for nothing.
    """
    zones: dict[tuple[str, str], list[str]] = {}
    for pool in pools:
        zones.setdefault((pool.region, pool.type), []).append(pool.zone)
    together: dict[Group, list[str]] = {}
    for (region, type), in_zones in zones.items():
        name = MachineName.parse(type)
        units_each = types[Pool("gcp", type, region, in_zones[0])].units(unit)
        if units_each:
            # Flexible machine types are not for machines with added GPUs: such a type is a group of its own.
            alone = (type,) if name.gpu else ()
            alike = Group(region, tuple(sorted(in_zones)), alone, units_each, name.boot_disk_type, name.gpu, name.gpus)
            together.setdefault(alike, []).append(type)
    found = [replace(alike, types=tuple(names)) for alike, names in together.items()]
    return tuple(sorted(found, key=lambda group: len(group.pools), reverse=True))


def request_id(group: Group, count: int, token: str) -> str:
    """The same for the same launch, so that one which is asked for twice happens once."""
    return str(uuid.uuid5(_NAMESPACE, f"{token} {group.region} {group.zones} {group.types} {count}"))


def metadata_items(user_data: str) -> list[dict[str, str]]:
    """User data as cloud-init reads it from the metadata: the very bytes that AWS gets, as text."""
    text = base64.b64encode(compressed(user_data)).decode("ascii")
    return [{"key": "user-data", "value": text}, {"key": "user-data-encoding", "value": "base64"}]


def body(
    group: Group, count: int, token: str, user_data: str, settings: FleetSettings, denied: Sequence[str]
) -> dict[str, Any]:
    """The BulkInsertInstanceResource for up to `count` machines. `denied`: the region's zones that are not the group's.

    At least one machine (`min_count`): what can be had is kept. Machines are deleted, not stopped, when they are preempted.
    They have no service account, so nothing that runs on them can speak to the cloud.
    """
    labels = {**settings.tags, FLEET_TAG: settings.name, LAUNCH_LABEL: token}
    short = uuid.uuid5(_NAMESPACE, request_id(group, count, token)).hex[:8]
    properties: dict[str, Any] = {
        "labels": labels,
        "metadata": {"items": metadata_items(user_data)},
        "scheduling": {
            "provisioning_model": "SPOT",
            "instance_termination_action": "DELETE",
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": False,
        },
        "disks": [_boot_disk(group, settings, labels)],
        "network_interfaces": [
            {
                "network": "global/networks/default",
                "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
            }
        ],
    }
    if group.gpu:
        properties["guest_accelerators"] = [{"accelerator_type": group.gpu, "accelerator_count": group.gpus}]
    machines = [MachineName.parse(type).machine for type in group.types]
    flexible = {"instance_selections": {"any": {"machine_types": machines}}}
    only = {"machine_type": machines[0]}
    return {
        "count": count,
        "min_count": 1,
        "name_pattern": f"vcdl-{settings.name[:_LONGEST_NAME].replace('_', '-')}-{short}-####",
        # A zone that is not mentioned is allowed; ANY takes whatever has capacity, where the default is one zone for all.
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
