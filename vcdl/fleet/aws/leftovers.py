"""Find and remove everything of a fleet in a region by tag.

The EC2 Fleets themselves are left: those of type `instant` own nothing, and expire automatically.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vcdl.fleet.aws.region import AwsRegion, batches, filter_by
from vcdl.fleet.provider import Leftover
from vcdl.fleet.refusal import CloudRefusal, ProblemKind


class _Kind(NamedTuple):
    """A kind of resource, with the calls that list and remove it."""

    noun: str
    describe: str
    """The call that lists resources of this kind."""
    ids: str
    """JMESPath of the ids in its answer."""
    remove: str
    """The call that removes them."""
    takes_list: bool = False
    """Whether that call takes several ids."""
    states: tuple[Mapping[str, Any], ...] = ()
    """Filters for the states in which a resource still costs or could cause costs."""


_OPEN = filter_by("state", "open", "active")
_NOT_GONE = filter_by("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped")
_REQUESTS = "SpotInstanceRequests[].SpotInstanceRequestId"
_INSTANCES = "Reservations[].Instances[].InstanceId"
_INTERFACES = "NetworkInterfaces[].NetworkInterfaceId"
_TEMPLATES = "LaunchTemplates[].LaunchTemplateId"
_KINDS = (
    # List requests before instances: an open request could still launch another.
    _Kind(
        "spot request", "describe_spot_instance_requests", _REQUESTS, "cancel_spot_instance_requests", True, (_OPEN,)
    ),
    _Kind("instance", "describe_instances", _INSTANCES, "terminate_instances", True, (_NOT_GONE,)),
    _Kind("volume", "describe_volumes", "Volumes[].VolumeId", "delete_volume"),
    _Kind("network interface", "describe_network_interfaces", _INTERFACES, "delete_network_interface"),
    _Kind("launch template", "describe_launch_templates", _TEMPLATES, "delete_launch_template"),
)


def find_leftovers(region: AwsRegion, fleet: Mapping[str, Any]) -> tuple[Leftover, ...]:
    """List a region's resources that still cost, in the order in which to remove them.

    Args:
        region: The region.
        fleet: The filter for the tag of a fleet, or of any fleet.

    Raises:
        CloudRefusal: AWS refuses a call, or cannot be reached.
    """
    return tuple(
        Leftover(kind.noun, id, region.name)
        for kind in _KINDS
        for id in region.all_of(kind.describe, kind.ids, Filters=[fleet, *kind.states])
    )


def remove(region: AwsRegion, leftovers: Iterable[Leftover]) -> frozenset[Leftover]:
    """Request the removal of a region's resources, without waiting; return those that the account may not remove.

    Other refusals are ignored, because the next listing shows what still exists.
    """
    denied: list[Leftover] = []
    # Follow the order of _KINDS: volumes and interfaces can be deleted only after their instances.
    for kind in _KINDS:
        ours = {one.id: one for one in leftovers if one.noun == kind.noun}
        # Try one call for many first. AWS refuses the whole list for one bad id, and then each is removed separately.
        if kind.takes_list and all(_remove(region, kind, some) is None for some in batches(ours)):
            continue
        for id, one in ours.items():
            if _remove(region, kind, [id] if kind.takes_list else id) is ProblemKind.NOT_AUTHORISED:
                denied.append(one)
    return frozenset(denied)


def _remove(region: AwsRegion, kind: _Kind, value: str | list[str]) -> ProblemKind | None:
    """Request the removal of one resource or a list; return why AWS refuses it, or None if it accepts."""
    argument = kind.ids.rpartition(".")[2] + ("s" if kind.takes_list else "")
    try:
        region.call(kind.remove, **{argument: value})
    except CloudRefusal as refused:
        return refused.kind
    return None
