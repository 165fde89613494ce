"""The tags of a fleet's resources on AWS."""

from collections.abc import Iterable, Mapping
from typing import Any

from vcdl.fleet.aws.region import Answer, named
from vcdl.fleet.provider import FLEET_TAG
from vcdl.fleet.settings import FleetSettings

LAUNCH_TAG = "vcdl-launch"
"""Of an instance: the token of the launch that made it."""


def fleet_filter(fleet: str) -> Mapping[str, Any]:
    """What carries the fleet's tag."""
    return named(f"tag:{FLEET_TAG}", fleet)


def tagged(
    settings: FleetSettings, kinds: Iterable[str], more: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """`TagSpecifications`: the fleet's tags, and more of them, on each kind of resource."""
    tags = {**settings.tags, FLEET_TAG: settings.name, **(more or {})}
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def tags_of(item: Answer) -> dict[str, str]:
    """The tags that a resource carries."""
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags", ())}
