"""AWS's refusals and botocore's errors as CloudRefusal.

The codes are those of https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.fleet.provider import ProblemKind
from vcdl.fleet.refusal import CloudRefusal, cloud_refusal, one_line

ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
IMAGE_EXISTS = "InvalidAMIName.Duplicate"
NOT_FOUND = ("InvalidInstanceID.NotFound", "InvalidID")
"""The codes for a missing instance."""

_NO_CAPACITY = (
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "UnfulfillableCapacity",
    "SpotMaxPriceTooLow",  # spot costs more than on demand there, which is the limit without a bid
    "InsufficientFreeAddressesInSubnet",
    "Unsupported",  # the zone does not offer the type, although AWS listed it
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
    # EC2 is eventually consistent: a new template may not be visible yet.
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


_ADVICE = {
    ProblemKind.NO_CAPACITY: "try again later, or allow more types and places",
    ProblemKind.THROTTLED: "try again later",
    ProblemKind.UNAVAILABLE: "try again later",
    ProblemKind.QUOTA: "request more in AWS's console under Service Quotas, or lower the target",
    ProblemKind.NOT_AUTHORISED: "check the credentials and the policy in docs/fleet-aws.md",
    ProblemKind.BAD_REQUEST: "change what it names in the fleet file",
}


def kind_of(code: str, status: int = 400) -> ProblemKind:
    """The kind of a code of AWS's. `status`: that of the HTTP answer."""
    if kind := _KINDS.get(code) or _KINDS.get(code.split(".")[0]):
        return kind
    if code.endswith("LimitExceeded"):
        return ProblemKind.QUOTA
    return ProblemKind.UNAVAILABLE if status >= 500 else ProblemKind.BAD_REQUEST


def refusal(error: ClientError | BotoCoreError, region: str, operation: str) -> CloudRefusal:
    """The CloudRefusal for one of botocore's errors."""
    if isinstance(error, ClientError):
        answer = error.response.get("Error", {})
        code, message = answer.get("Code", "Unknown"), answer.get("Message", "")
        kind = kind_of(code, error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    else:
        code, message = type(error).__name__, str(error)
        kind = _kind_without_answer(error)
    advice = _ADVICE[kind]
    if code == "EndpointConnectionError":
        advice = "check the network, and the region's name in the fleet file"
    return cloud_refusal(kind, f"AWS refused {operation} in {region}: {code}: {one_line(message)}; {advice}", code)


def _kind_without_answer(error: BotoCoreError) -> ProblemKind:
    if isinstance(error, _NO_CREDENTIALS):
        return ProblemKind.NOT_AUTHORISED
    return ProblemKind.UNAVAILABLE if isinstance(error, _CUT_OFF) else ProblemKind.BAD_REQUEST
