"""What AWS refuses, and what botocore cannot do, as errors of ours that keep the code and say what kind it is.

The kinds tell a reconciler what helps; the codes are those of https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.provider import ProblemKind

ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
NOT_FOUND = ("InvalidInstanceID.NotFound", "InvalidID")
"""Of instances."""

_LONGEST = 400
"""Characters of AWS's message: an UnauthorizedOperation comes with an encoded one of thousands."""

_NO_CAPACITY = (
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "UnfulfillableCapacity",
    "SpotMaxPriceTooLow",  # spot costs more than on demand there, which is the ceiling of those who set none
    "InsufficientFreeAddressesInSubnet",
    "Unsupported",  # the zone does not offer the type, whatever was said of it before
)
_THROTTLED = (
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "EC2ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "SlowDown",
    "PriorRequestNotComplete",
)
_QUOTA = (
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "InstanceLimitExceeded",
    "MaxSpotFleetRequestCountExceeded",
)
_NOT_AUTHORISED = (
    "AuthFailure",
    "UnauthorizedOperation",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "AccessDenied",
    "AccessDeniedException",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
)
_UNAVAILABLE = (
    "InternalError",
    "InternalFailure",
    "Unavailable",
    "ServiceUnavailable",
    "RequestTimeout",
    # EC2 is eventually consistent: what was made a moment ago may not be seen yet.
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
)
_KINDS = {
    **dict.fromkeys(_NO_CAPACITY, ProblemKind.NO_CAPACITY),
    **dict.fromkeys(_THROTTLED, ProblemKind.THROTTLED),
    **dict.fromkeys(_QUOTA, ProblemKind.QUOTA),
    **dict.fromkeys(_NOT_AUTHORISED, ProblemKind.NOT_AUTHORISED),
    **dict.fromkeys(_UNAVAILABLE, ProblemKind.UNAVAILABLE),
}
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.ProfileNotFound,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.SSOError,
)
_CUT_OFF = (boto.HTTPClientError, boto.ConnectionError)


class AwsRefusal(FleetError):
    """A call that AWS refused, or that could not be made; `code` is AWS's, or the name of botocore's exception."""

    def __init__(self, message: str, code: str, kind: ProblemKind) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


class AwsUnavailable(AwsRefusal, FleetUnavailable):
    """Throttled, AWS's fault, or cut off."""


class AwsNotAuthorised(AwsRefusal, FleetNotAuthorised):
    """Credentials are missing or expired, or lack a right."""


_ERRORS: dict[ProblemKind, tuple[type[AwsRefusal], str]] = {
    ProblemKind.NO_CAPACITY: (AwsUnavailable, "try again later, or allow more types and places"),
    ProblemKind.THROTTLED: (AwsUnavailable, "try again later"),
    ProblemKind.UNAVAILABLE: (AwsUnavailable, "try again later"),
    ProblemKind.QUOTA: (AwsRefusal, "ask for more in AWS's console under Service Quotas, or lower the target"),
    ProblemKind.NOT_AUTHORISED: (AwsNotAuthorised, "check the credentials and the policy in docs/fleet-aws.md"),
    ProblemKind.BAD_REQUEST: (AwsRefusal, "change what it names in the fleet file"),
}


def kind_of(code: str, status: int = 400) -> ProblemKind:
    """What kind of refusal a code of AWS's is; `status`: that of its HTTP answer."""
    if kind := _KINDS.get(code) or _KINDS.get(code.split(".")[0]):
        return kind
    if code.endswith("LimitExceeded"):
        return ProblemKind.QUOTA
    return ProblemKind.UNAVAILABLE if status >= 500 else ProblemKind.BAD_REQUEST


def one_line(code: str, message: str) -> str:
    """AWS's code and words, on one line that is not too long."""
    words = " ".join(message.split())
    return f"{code}: {words if len(words) <= _LONGEST else words[:_LONGEST] + '…'}"


def refusal(error: ClientError | BotoCoreError, region: str, operation: str) -> AwsRefusal:
    """Our error for one of botocore's."""
    if isinstance(error, ClientError):
        said = error.response.get("Error", {})
        code, message = said.get("Code", "Unknown"), said.get("Message", "")
        kind = kind_of(code, error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    else:
        code, message = type(error).__name__, str(error)
        kind = _kind_without_answer(error)
    made, advice = _ERRORS[kind]
    if code == "EndpointConnectionError":
        advice = "check the network, and the region's name in the fleet file"
    return made(f"AWS refused {operation} in {region}: {one_line(code, message)}; {advice}", code, kind)


def _kind_without_answer(error: BotoCoreError) -> ProblemKind:
    if isinstance(error, _NO_CREDENTIALS):
        return ProblemKind.NOT_AUTHORISED
    return ProblemKind.UNAVAILABLE if isinstance(error, _CUT_OFF) else ProblemKind.BAD_REQUEST
