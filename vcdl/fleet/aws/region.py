"""One service of AWS in one region: the only place that calls boto3 and handles its exceptions; filters and tags."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.fleet.aws.refusal import refusal
from vcdl.fleet.provider import FLEET_TAG
from vcdl.fleet.settings import FleetSettings

Answer = Mapping[str, Any]

_CONFIG = Config(
    # Adaptive: repeats calls after throttling and faults, and slows the client down while AWS throttles.
    retries={"mode": "adaptive", "total_max_attempts": 5},
    connect_timeout=5,  # a region that is away must not hold up a pass of the others for minutes
    read_timeout=60,
    user_agent_extra="vcdl-fleet",
)
_BATCH = 100
"""Values in one list: AWS takes 100 types at once, and 200 values in a filter."""


class AwsRegion:
    """Calls by their name in boto3. Each may be repeated, and raises CloudRefusal."""

    def __init__(self, session: Any, name: str, service: str = "ec2") -> None:
        """`session`: a boto3.Session, which must make clients in one thread only. Raises CloudRefusal."""
        self.name = name
        try:
            self._client = session.client(service, region_name=name, config=_CONFIG)
        except BotoCoreError as error:
            raise refusal(error, name, "Client") from error

    def call(self, operation: str, **arguments: Any) -> Answer:
        """AWS's answer. Raises CloudRefusal."""
        try:
            answer: Answer = getattr(self._client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error
        return answer

    def all_of(self, operation: str, items: str, **arguments: Any) -> Iterator[Any]:
        """The items of all pages. `items`: their place in the answer, in JMESPath. Raises CloudRefusal."""
        try:
            for item in self._client.get_paginator(operation).paginate(**arguments).search(items):
                if item is not None:
                    yield item
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def session_or(session: Any, region: str) -> Any:
    """The session; None: one with the credentials that boto3 finds. Raises FleetNotAuthorised."""
    try:
        return session or boto3.Session()
    except BotoCoreError as error:  # AWS_PROFILE names a missing profile
        raise refusal(error, region, "Session") from error


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """The values in lists that AWS takes."""
    rest = list(values)
    while rest:
        yield rest[:_BATCH]
        rest = rest[_BATCH:]


def filter_by(name: str, *values: str) -> Mapping[str, Any]:
    """A filter of a `describe_…` call: one of these values."""
    return {"Name": name, "Values": list(values)}


def fleet_filter(*fleets: str) -> Mapping[str, Any]:
    """A filter for everything with the tag of one of these fleets."""
    return filter_by(f"tag:{FLEET_TAG}", *fleets)


def tag_specifications(
    settings: FleetSettings, kinds: Iterable[str], more: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """`TagSpecifications` with the fleet's tags, and more, for each kind of resource."""
    tags = {**settings.tags, FLEET_TAG: settings.name, **(more or {})}
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def tags_of(item: Answer) -> dict[str, str]:
    """The tags of a resource."""
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags", ())}
