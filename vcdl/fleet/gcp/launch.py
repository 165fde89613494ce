"""Launch machines by regional bulk inserts, one for each group of pools.

A bulk insert requests a number of machines, so all types of a group must provide the same number of units. A repeated
launch is harmless: the same launch has the same request id, and its machines are found by the token in their label.
"""

import base64
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcdl.fleet.gcp.catalogue import MachineCatalogue, MachineName
from vcdl.fleet.gcp.connection import Connection, errors_of
from vcdl.fleet.gcp.instances import GcpInstances
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.machine.cloud_init import compress
from vcdl.fleet.provider import FLEET_TAG, LAUNCH_TAG, LaunchResult, ProviderProblem, missing_units
from vcdl.fleet.refusal import CloudRefusal, ProblemKind
from vcdl.fleet.settings import FleetSettings, Unit

_MAX_MACHINES = 1000
"""Compute Engine's limit for the machines of one bulk insert."""
_LIMIT_S = 300.0
"""Seconds to wait for a bulk insert; no longer, because a later pass finds its machines anyway."""
_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
"""Ubuntu 24.04, whose cloud-init reads `user-data` from the machine's metadata."""
_NAMESPACE = uuid.UUID("0d3f1f5e-5a0e-4c2b-9b6c-6d2f6a3f7f10")
_SPOT = {"provisioning_model": "SPOT", "preemption_notice_duration": {"seconds": 120}}
"""Scheduling of spot machines. Without the duration a machine would get no notice, only the 30 s of its shutdown."""
_MAX_NAME = 40
"""Most characters of the fleet's name in a machine's name, which may have at most 63."""


@dataclass(frozen=True)
class Group:
    """Pools from which one bulk insert may take machines: each of the types in each of the zones."""

    region: str
    zones: tuple[str, ...]
    types: tuple[str, ...]
    units_each: int
    """Units of capacity of one machine, whichever its type."""
    on_demand: bool

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of the group: each type in each zone."""
        return tuple(
            Pool("gcp", type, self.region, zone, on_demand=self.on_demand) for type in self.types for zone in self.zones
        )

    def problems(self, kind: ProblemKind, words: str) -> list[ProviderProblem]:
        """Return one problem for each pool of the group."""
        return [ProviderProblem(pool, kind, words) for pool in self.pools]


def groups(pools: Sequence[Pool], types: Mapping[Pool, InstanceType], unit: Unit) -> tuple[Group, ...]:
    """Group the pools of each region into few bulk inserts.

    Args:
        pools: The pools.
        types: The machine type of each pool.
        unit: The unit of capacity; types that do not provide it are left out.

    Returns:
        The groups, by region in the order of the pools, and the ones with most pools first, because a wide choice of
        types reduces preemptions.
    """
    zones: dict[tuple[str, str, bool], list[str]] = {}
    for pool in pools:
        zones.setdefault((pool.region, pool.type, pool.on_demand), []).append(pool.zone)
    # Also group by disk type: all machines of one bulk insert have the same disk, and some series boot only from
    # hyperdisks.
    together: dict[tuple[Group, str], list[str]] = {}
    for (region, type, on_demand), in_zones in zones.items():
        name = MachineName.parse(type)
        if units_each := types[Pool("gcp", type, region, in_zones[0])].units(unit):
            # Compute Engine chooses among types only for machines without added GPUs: the others form separate groups.
            alike = Group(region, tuple(sorted(in_zones)), (type,) if name.gpu else (), units_each, on_demand)
            together.setdefault((alike, name.boot_disk_type), []).append(type)
    found = [replace(alike, types=tuple(names)) for (alike, _), names in together.items()]
    regions = list(dict.fromkeys(pool.region for pool in pools))
    return tuple(sorted(found, key=lambda group: (regions.index(group.region), -len(group.pools))))


def metadata_items(user_data: str, marks: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return a machine's metadata as a list of key and value, in the form of a request.

    The metadata contain the compressed user data and the lease, and keep the GCP project's SSH keys out.

    Args:
        user_data: The cloud-init file.
        marks: The lease, from `Provider.marks`.
    """
    text = base64.b64encode(compress(user_data)).decode("ascii")
    items = {"user-data": text, "user-data-encoding": "base64", "block-project-ssh-keys": "TRUE", **(marks or {})}
    return [{"key": key, "value": value} for key, value in items.items()]


@dataclass(frozen=True)
class BulkLaunch:
    """A launch on Compute Engine, as `Provider.launch` describes it."""

    connection: Connection
    catalogue: MachineCatalogue
    instances: GcpInstances
    settings: FleetSettings
    token: str
    metadata: Sequence[Mapping[str, str]]

    def run(self, pools: Sequence[Pool], types: Mapping[Pool, InstanceType], units: int) -> LaunchResult:
        """Insert machines, group after group, until those with this launch's token provide `units` units.

        This waits for each insert, for minutes if necessary. Refusals are returned as problems.

        Args:
            pools: The pools to use.
            types: The machine type of each pool.
            units: The capacity to launch.
        """
        unit = self.settings.capacity.unit
        launched: tuple[Instance, ...] = ()
        problems: dict[tuple[Pool, ProblemKind], ProviderProblem] = {}
        away: set[str] = set()
        """Regions with a problem that concerns all of their pools, so that they are not asked again."""
        for group in groups(pools, types, unit):
            missing = missing_units(units, launched, unit)
            if missing <= 0:
                break
            if group.region in away:
                continue
            count = min(math.ceil(missing / group.units_each), _MAX_MACHINES)
            try:
                operation = self._insert(group, count)
                # List the machines by label: the operation does not say which machines it created, and an earlier call
                # with this token may have created some.
                before, launched = launched, self.instances.list(f'labels.{LAUNCH_TAG} = "{self.token}"')
                made = len(launched) - len(before)
                met = self._shortages(group, operation, f"{made} of {count} machines") if made < count else []
            except CloudRefusal as refused:
                met = group.problems(refused.kind, str(refused))
            problems |= {(problem.pool, problem.kind): problem for problem in met}
            if any(not problem.kind.may_spare_other_pools for problem in met):
                away |= {group.region}
        return LaunchResult(launched, tuple(problems.values()))

    def _insert(self, group: Group, count: int) -> Any:
        """Request a bulk insert of at most `count` machines, wait until it is done, and return its operation.

        Raises:
            CloudRefusal: Compute Engine refuses the insert, or cannot be reached.
        """
        # Derive the request id from the launch, so that Compute Engine performs a repeated request only once.
        words = f"{self.token} {group.region} {group.zones} {group.types} {count}"
        request = {
            "region": group.region,
            "request_id": (id := str(uuid.uuid5(_NAMESPACE, words))),
            "bulk_insert_instance_resource_resource": self._body(group, count, uuid.uuid5(_NAMESPACE, id).hex[:8]),
        }
        try:
            operation = self.connection.call("region_instances.bulk_insert_unary", **request)
        except CloudRefusal as refused:
            # Without a status there was no answer, so the insert may have been performed. Because of the request id it
            # is safe to repeat it.
            if refused.code or refused.kind is not ProblemKind.UNAVAILABLE:
                raise
            operation = self.connection.call("region_instances.bulk_insert_unary", **request)  # the answer was lost
        return self.connection.wait(operation.name, _LIMIT_S, group.region)

    def _body(self, group: Group, count: int, name: str) -> dict[str, Any]:
        """Return the BulkInsertInstanceResource for 1 to `count` machines.

        The machines are deleted on preemption, and have no permissions in the GCP project.

        Args:
            group: The pools.
            count: Most machines.
            name: A text that makes the machines' names unique.
        """
        settings = self.settings
        labels = {**settings.tags, FLEET_TAG: settings.name, LAUNCH_TAG: self.token}
        names = [MachineName.parse(type) for type in group.types]
        disk = {
            "source_image": settings.image_in(group.region) or _IMAGE,
            "disk_size_gb": settings.disk_gb,
            "disk_type": names[0].boot_disk_type,
            "labels": labels,
        }
        properties: dict[str, Any] = {
            "labels": labels,
            "metadata": {"items": self.metadata},
            "scheduling": {
                **({"provisioning_model": "STANDARD"} if group.on_demand else _SPOT),
                "instance_termination_action": "DELETE",
                "on_host_maintenance": "TERMINATE",
                "automatic_restart": False,
                # As a last resort the cloud itself deletes the machine, ten minutes after life and drain time are over.
                "max_run_duration": {"seconds": settings.max_life_h * 3600 + settings.drain_s + 600},
            },
            "shielded_instance_config": {
                "enable_secure_boot": settings.capacity.unit != "gpu",  # NVIDIA's driver is not signed
                "enable_vtpm": True,
                "enable_integrity_monitoring": True,
            },
            "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
            "tags": {"items": [FLEET_TAG]},  # for firewall rules
            "network_interfaces": [_interface(group.region, settings)],
        }
        if names[0].gpu:
            added = {"accelerator_type": names[0].gpu, "accelerator_count": names[0].gpus}
            properties["guest_accelerators"] = [added]
        flexible = {"instance_selections": {"any": {"machine_types": [name.machine for name in names]}}}
        if len(names) == 1:
            properties["machine_type"] = names[0].machine
        # Deny the region's other zones, since zones that are not mentioned are allowed. ANY takes machines from
        # any zones with capacity; the default would be one zone for all.
        zones = {f"zones/{zone}": {"preference": "DENY"} for zone in self.catalogue.zones(group.region)}
        zones |= {f"zones/{zone}": {"preference": "ALLOW"} for zone in group.zones}
        return {
            "count": count,
            "min_count": 1,
            "name_pattern": f"vcdl-{settings.name[:_MAX_NAME].replace('_', '-')}-{name}-####",
            "location_policy": {"target_shape": "ANY", "locations": zones},
            "instance_properties": properties,
            **({"instance_flexibility_policy": flexible} if len(names) > 1 else {}),
        }

    def _shortages(self, group: Group, operation: Any, made: str) -> list[ProviderProblem]:
        """Find out why a bulk insert created too few machines.

        The inserts of single machines, which it consists of, give more precise reasons than the bulk insert itself.

        Args:
            group: The pools of the insert.
            operation: The finished bulk insert.
            made: How many machines it created, as text for the message.

        Returns:
            At least one problem.
        """
        problems: list[ProviderProblem] = []
        wanted = f'operationGroupId = "{operation.operation_group_id}"'
        for zone in group.zones:
            for insert in self.connection.list_all("zone_operations.list", zone=zone, filter=wanted):
                for error, kind, words in errors_of(insert):
                    problems += [ProviderProblem(pool, kind, words) for pool in _blamed_pools(group, zone, error)]
        if not problems:
            problems = [it for _, kind, words in errors_of(operation) for it in group.problems(kind, words)]
        # Return at least one problem, because without one the pools would have no cooldown and be asked again at once.
        return problems or group.problems(ProblemKind.NO_CAPACITY, f"it made {made}, and does not say why")


def _blamed_pools(group: Group, zone: str, error: Any) -> Iterator[Pool]:
    """Return the pools of a group in a zone that an error concerns: of the type that it names, otherwise of all."""
    type = next((it.error_info.metadatas.get("vmType", "") for it in error.error_details), "")
    return (pool for pool in group.pools if pool.zone == zone and type in ("", pool.type.split("+")[0]))


def _interface(region: str, settings: FleetSettings) -> dict[str, Any]:
    place = next(place for place in settings.places if place.region == region)
    subnet, network = next(iter(place.subnets), None), place.network
    nat = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}] if settings.public_address else []
    interface: dict[str, Any] = {"access_configs": nat}
    if network or not subnet:
        network = network or "default"
        interface["network"] = network if "/" in network else f"global/networks/{network}"
    if subnet:
        interface["subnetwork"] = subnet if "/" in subnet else f"regions/{region}/subnetworks/{subnet}"
    return interface
