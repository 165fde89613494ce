"""Find and remove everything of a fleet in a region, by tag alone, so that no lost file can hide anything.

EC2 Fleets are no leftovers: one of type `instant` owns nothing once it has answered, costs nothing, and expires.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vcdl.fleet.aws.region import AwsRegion, batches, filter_by
from vcdl.fleet.provider import Leftover
from vcdl.fleet.refusal import CloudRefusal, ProblemKind


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
    outlives_fleet: bool = False
    """Whether `down` leaves it alone."""


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
    # Images before what is behind them.
    _Kind("image", "describe_images", "Images[].ImageId", "deregister_image", "ImageId", outlives_fleet=True),
    _Kind(
        "snapshot",
        "describe_snapshots",
        "Snapshots[].SnapshotId",
        "delete_snapshot",
        "SnapshotId",
        outlives_fleet=True,
    ),
)


def find_leftovers(region: AwsRegion, fleet: Mapping[str, Any], with_images: bool) -> tuple[Leftover, ...]:
    """The leftovers that a filter selects, in the order in which they should be removed. Raises CloudRefusal."""
    return tuple(
        Leftover(kind.noun, id, region.name)
        for kind in _KINDS
        if with_images or not kind.outlives_fleet
        for id in region.all_of(kind.describe, kind.ids, Filters=[fleet, *([kind.states] if kind.states else [])])
    )


def remove(region: AwsRegion, leftovers: Iterable[Leftover]) -> frozenset[Leftover]:
    """Ask AWS to remove a region's leftovers; returns those that the account may not remove."""
    denied: list[Leftover] = []
    for kind in _KINDS:
        ours = {one.id: one for one in leftovers if one.noun == kind.noun}
        if kind.is_list and all(_refused(region, kind, some) is None for some in batches(ours)):
            continue
        for id, one in ours.items():
            if _refused(region, kind, [id] if kind.is_list else id) is ProblemKind.NOT_AUTHORISED:
                denied.append(one)
    return frozenset(denied)


def _refused(region: AwsRegion, kind: _Kind, value: str | list[str]) -> ProblemKind | None:
    """Why AWS refuses to remove something; the next look shows what is still there."""
    try:
        region.call(kind.remove, **{kind.argument: value})
    except CloudRefusal as refused:
        return refused.kind
    return None
