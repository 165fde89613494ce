"""Find and remove everything of a fleet in a region, by tag alone, so that no lost file can hide anything.

EC2 Fleets are no leftovers: one of type `instant` owns nothing once it has answered, costs nothing, and expires.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from vcdl.fleet.aws.region import AwsRegion, batches, filter_by, fleet_filter
from vcdl.fleet.provider import ProblemKind
from vcdl.fleet.refusal import CloudRefusal


@dataclass(frozen=True)
class _Kind:
    """One kind of resource: how it is found and removed."""

    noun: str
    describe: str
    ids: str
    """The place of the ids in the answer, in JMESPath."""
    remove: str
    argument: str
    is_list: bool = False
    states: Mapping[str, Any] | None = None
    """The states that count; None: all."""


_KINDS = (
    # Requests before instances: an open one could still launch another.
    _Kind(
        "spot request",
        "describe_spot_instance_requests",
        "SpotInstanceRequests[].SpotInstanceRequestId",
        "cancel_spot_instance_requests",
        "SpotInstanceRequestIds",
        is_list=True,
        states=filter_by("state", "open", "active"),
    ),
    _Kind(
        "instance",
        "describe_instances",
        "Reservations[].Instances[].InstanceId",
        "terminate_instances",
        "InstanceIds",
        is_list=True,
        states=filter_by("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped"),
    ),
    _Kind("volume", "describe_volumes", "Volumes[].VolumeId", "delete_volume", "VolumeId"),
    _Kind(
        "network interface",
        "describe_network_interfaces",
        "NetworkInterfaces[].NetworkInterfaceId",
        "delete_network_interface",
        "NetworkInterfaceId",
    ),
    _Kind(
        "launch template",
        "describe_launch_templates",
        "LaunchTemplates[].LaunchTemplateId",
        "delete_launch_template",
        "LaunchTemplateId",
    ),
)


@dataclass(frozen=True)
class Leftover:
    """A resource that still exists."""

    kind: _Kind
    id: str
    region: AwsRegion

    def __str__(self) -> str:
        """`instance i-1 in us-east-1`."""
        return f"{self.kind.noun} {self.id} in {self.region.name}"


def find_leftovers(region: AwsRegion, fleet: str) -> tuple[Leftover, ...]:
    """The leftovers, in the order in which they should be removed. Raises CloudRefusal."""
    return tuple(
        Leftover(kind, id, region)
        for kind in _KINDS
        for id in region.all_of(
            kind.describe, kind.ids, Filters=[fleet_filter(fleet), *([kind.states] if kind.states else [])]
        )
    )


def remove(leftovers: Iterable[Leftover]) -> None:
    """Ask AWS to remove them. Raises CloudRefusal for missing rights only; the next look shows what is still there."""
    for (region, kind), group in groupby(leftovers, key=lambda one: (one.region, one.kind)):
        ids = [one.id for one in group]
        if kind.is_list and all(_is_accepted(region, kind, some) for some in batches(ids)):
            continue
        for id in ids:
            _is_accepted(region, kind, [id] if kind.is_list else id)


def _is_accepted(region: AwsRegion, kind: _Kind, value: str | list[str]) -> bool:
    try:
        region.call(kind.remove, **{kind.argument: value})
    except CloudRefusal as refused:
        if refused.kind is ProblemKind.NOT_AUTHORISED:
            raise
        return False
    return True
