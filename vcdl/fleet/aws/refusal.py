"""AWS's refusals and botocore's errors as CloudRefusal.

The codes are those of https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.fleet.refusal import CloudRefusal, ProblemKind, cloud_refusal, kind_by

ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
IMAGE_EXISTS = "InvalidAMIName.Duplicate"
NOT_FOUND = ("InvalidInstanceID.NotFound", "InvalidID")
"""The codes for a missing instance."""

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
        "MissingAuthenticationToken|ExpiredToken.*|RequestExpired|OptInRequired|PendingVerification|Blocked"
    ),
    # EC2 is eventually consistent: a new template may not be visible yet.
    ProblemKind.UNAVAILABLE: (
        "Internal(Error|Failure)|(Service)?Unavailable|RequestTimeout|InvalidLaunchTemplate(Id|Name).NotFound.*"
    ),
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


def kind_of(code: str, status: int = 400) -> ProblemKind:
    """The kind of a code of AWS's. `status`: that of the HTTP answer."""
    return kind_by(_KINDS, code) or (ProblemKind.UNAVAILABLE if status >= 500 else ProblemKind.BAD_REQUEST)


def refusal(error: ClientError | BotoCoreError, region: str, operation: str) -> CloudRefusal:
    """The CloudRefusal for one of botocore's errors."""
    code, message, advice = type(error).__name__, str(error), ""
    if isinstance(error, ClientError):
        answer = error.response.get("Error", {})
        code, message = answer.get("Code", "Unknown"), answer.get("Message", "")
        kind = kind_of(code, error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    elif isinstance(error, _NO_CREDENTIALS):
        kind = ProblemKind.NOT_AUTHORISED
    else:
        kind = ProblemKind.UNAVAILABLE if isinstance(error, _CUT_OFF) else ProblemKind.BAD_REQUEST
    if isinstance(error, boto.EndpointConnectionError):
        advice = "check the network, and the region's name in the fleet file"
    return cloud_refusal("aws", kind, f"AWS refused {operation} in {region}: {code}: {message}", code, advice)
