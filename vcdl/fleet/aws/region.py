"""Call AWS through boto3, convert its errors, and build its filters and tags. Nothing else makes calls with boto3.

The codes are those of https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.fleet.provider import FLEET_TAG
from vcdl.fleet.refusal import CloudRefusal, ProblemKind, cloud_refusal, kind_by
from vcdl.fleet.settings import FleetSettings
from vcdl.report.wording import duration

Answer = Mapping[str, Any]
ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
NOT_FOUND = ("InvalidInstanceID.NotFound", "InvalidID")
"""AWS's error codes for a missing instance."""

_KINDS = {
    # Unsupported: the zone does not offer the type, although AWS listed it. SpotMaxPriceTooLow: spot costs more than on
    # demand there, which is the limit without a bid.
    ProblemKind.NO_CAPACITY: "Insufficient.*(Capacity|Addresses).*|Unfulfillable.*|SpotMaxPriceTooLow|Unsupported",
    ProblemKind.THROTTLED: (
        "RequestLimitExceeded|BandwidthLimitExceeded|.*Thrott.*|TooManyRequests.*|SlowDown|PriorRequestNotComplete"
    ),
    ProblemKind.QUOTA: ".*LimitExceeded|MaxSpot.*CountExceeded",
    ProblemKind.NOT_AUTHORISED: (
        "AuthFailure|Unauthorized.*|UnrecognizedClient.*|AccessDenied.*|.*Signature.*|InvalidClientTokenId|"
        "MissingAuthenticationToken|ExpiredToken.*|RequestExpired|OptInRequired|PendingVerification|Blocked|"
        ".*Credential.*Error|ProfileNotFound|NoAuthTokenError|TokenRetrievalError|SSO.*Error"
    ),
    # EC2 is eventually consistent: a new template may not be visible yet.
    ProblemKind.UNAVAILABLE: (
        "Internal(Error|Failure)|(Service)?Unavailable|RequestTimeout|InvalidLaunchTemplate(Id|Name).NotFound.*|"
        "(HTTPClient|SSL|ResponseStreaming|.*Connection.*|(Connect|Read)Timeout)Error"
    ),
}

_CONFIG = Config(
    # Adaptive mode repeats calls after throttling and faults, and slows the client down while AWS throttles.
    retries={"mode": "adaptive", "total_max_attempts": 5},
    connect_timeout=5,  # a region that is away must not hold up a pass of the others for minutes
    read_timeout=60,
    user_agent_extra="vcdl-fleet",
)
_SIGNED_S = 240.0
"""Clock difference in seconds above which a refusal is blamed on it: AWS refuses signatures that are 5 min off."""
_BATCH = 100
"""Values in one list: AWS accepts at most 100 types in a call and 200 values in a filter."""


class AwsRegion:
    """An AWS service in one region, whose calls are named as in boto3.

    boto3 itself repeats calls after throttling and temporary faults, so each call must be harmless when it is repeated.
    Calls raise CloudRefusal.
    """

    def __init__(self, session: Any, name: str, service: str = "ec2") -> None:
        """Create the client of a region.

        Args:
            session: A boto3.Session; it must create clients in one thread only.
            name: The region.
            service: The AWS service.

        Raises:
            CloudRefusal: There is no such region, or no credentials.
        """
        self.name = name
        self.clock_offset = -math.inf, 0.0
        """Monotonic time of the last answer, and the seconds by which AWS's clock was ahead of this machine's then."""
        try:
            self._client = session.client(service, region_name=name, config=_CONFIG)
            # Each answer has AWS's time in its header, so no extra call is needed to compare clocks.
            self._client.meta.events.register("response-received", self._note_date)
        except BotoCoreError as error:
            raise refusal(error, name, "Client") from error

    def _note_date(self, response_dict: Answer | None, **_: Any) -> None:
        if (offset_s := _offset_s((response_dict or {}).get("headers", {}))) is not None:
            self.clock_offset = time.monotonic(), offset_s

    def call(self, operation: str, **arguments: Any) -> Answer:
        """Make a call, and return AWS's answer.

        Raises:
            CloudRefusal: AWS refuses the call, or cannot be reached.
        """
        try:
            answer: Answer = getattr(self._client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error
        return answer

    def all_of(self, operation: str, items: str, **arguments: Any) -> Iterator[Any]:
        """Yield the items of all pages of a call.

        Args:
            operation: The call.
            items: JMESPath of the items in an answer.
            arguments: The arguments of the call.

        Raises:
            CloudRefusal: AWS refuses the call, or cannot be reached.
        """
        try:
            for item in self._client.get_paginator(operation).paginate(**arguments).search(items):
                if item is not None:
                    yield item
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error


def _offset_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds by which the clock of the headers' sender is ahead of this machine's, or None if unknown."""
    return parsedate_to_datetime(headers["date"]).timestamp() - time.time() if "date" in headers else None


def session_or(session: Any, region: str) -> Any:
    """Return the given boto3.Session, or if it is None a new one with the credentials that boto3 finds.

    Raises:
        FleetNotAuthorised: There are no credentials.
    """
    try:
        return session or boto3.Session()
    except BotoCoreError as error:  # AWS_PROFILE names a missing profile
        raise refusal(error, region, "Session") from error


def kind_of(code: str, status: int = 400) -> ProblemKind:
    """Classify an AWS error.

    Args:
        code: AWS's error code, or the name of a botocore exception.
        status: The HTTP status, which decides if the code is unknown.
    """
    # With an unknown code, a server error may be temporary. Any other status means that something in the request is
    # wrong, which only a user can change.
    return kind_by(_KINDS, code) or (ProblemKind.UNAVAILABLE if status >= 500 else ProblemKind.BAD_REQUEST)


def refusal(error: ClientError | BotoCoreError, region: str, operation: str) -> CloudRefusal:
    """Convert a botocore error to a CloudRefusal, with advice for a wrong clock and an unreachable region."""
    code, message, status, offset_s = type(error).__name__, str(error), 400, 0.0
    if isinstance(error, ClientError):
        answer = error.response.get("Error", {})
        code, message = answer.get("Code", "Unknown"), answer.get("Message", "")
        answered = error.response.get("ResponseMetadata", {})
        status, offset_s = answered.get("HTTPStatusCode", 400), _offset_s(answered.get("HTTPHeaders", {})) or 0.0
    advice = "check the network, and the region's name in the fleet file" if code == "EndpointConnectionError" else ""
    if abs(offset_s) > _SIGNED_S:
        advice = f"set this machine's clock: it is {duration(abs(offset_s))} {'behind' if offset_s > 0 else 'ahead'}"
    said = f"AWS refused {operation} in {region}: {code}: {message}"
    return cloud_refusal("aws", kind_of(code, status), said, code, advice)


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Split values into lists of at most `_BATCH`, as many as AWS accepts in one call."""
    listed = list(values)
    return (listed[begin : begin + _BATCH] for begin in range(0, len(listed), _BATCH))


def filter_by(name: str, *values: str) -> Mapping[str, Any]:
    """Return a filter for a `describe_…` call that selects any of these values."""
    return {"Name": name, "Values": list(values)}


def fleet_filter(fleet: str) -> Mapping[str, Any]:
    """Return a filter for a `describe_…` call that selects everything with the tag of a fleet."""
    return filter_by(f"tag:{FLEET_TAG}", fleet)


def tag_specifications(
    settings: FleetSettings, kinds: Iterable[str], more: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """Return the `TagSpecifications` of a call: the fleet's tags and `more`, for each of these kinds of resource."""
    tags = {**settings.tags, FLEET_TAG: settings.name, **(more or {})}
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def tags_of(item: Answer) -> dict[str, str]:
    """Return the tags of a resource that AWS has described, name → value."""
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags", ())}
