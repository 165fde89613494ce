"""Compute Engine's refusals (HTTP errors, errors of operations) and its library's errors as CloudRefusal."""

from collections.abc import Iterator
from contextlib import contextmanager

from vcdl.fleet.provider import ProblemKind
from vcdl.fleet.refusal import CloudRefusal, cloud_refusal, one_line

NOT_FOUND = "404"
EXISTS = "409"
CONFLICT = "412"
"""Somebody else wrote the same thing in between."""

_KINDS = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": ProblemKind.NO_CAPACITY,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": ProblemKind.NO_CAPACITY,
    "REGION_RESOURCE_POOL_EXHAUSTED": ProblemKind.NO_CAPACITY,
    "RESOURCE_POOL_EXHAUSTED": ProblemKind.NO_CAPACITY,
    "resourcePoolExhausted": ProblemKind.NO_CAPACITY,
    "insufficientCapacity": ProblemKind.NO_CAPACITY,
    "VM_MIN_COUNT_NOT_REACHED": ProblemKind.NO_CAPACITY,
    "QUOTA_EXCEEDED": ProblemKind.QUOTA,
    "quotaExceeded": ProblemKind.QUOTA,
    "limitExceeded": ProblemKind.QUOTA,
    "rateLimitExceeded": ProblemKind.THROTTLED,
    "userRateLimitExceeded": ProblemKind.THROTTLED,
    "RATE_LIMIT_EXCEEDED": ProblemKind.THROTTLED,
    "concurrentLimitExceeded": ProblemKind.THROTTLED,
    "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": ProblemKind.THROTTLED,
    "PERMISSIONS_ERROR": ProblemKind.NOT_AUTHORISED,
    "resourceNotReady": ProblemKind.UNAVAILABLE,
    "RESOURCE_NOT_READY": ProblemKind.UNAVAILABLE,
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": ProblemKind.UNAVAILABLE,
    "INTERNAL_ERROR": ProblemKind.UNAVAILABLE,
}
"""By reason, which is more precise than the status: quotas and missing rights are 403, shortages and faults 503."""

_ADVICE = {
    ProblemKind.NO_CAPACITY: "try again later, or allow more types and zones",
    ProblemKind.QUOTA: "request more quota (IAM & Admin, Quotas), or lower the target",
    ProblemKind.THROTTLED: "try again later",
    ProblemKind.NOT_AUTHORISED: (
        "check which account is used (gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS) "
        "and its roles; docs/fleet-gcp.md lists what it needs"
    ),
    ProblemKind.BAD_REQUEST: "correct the fleet file",
    ProblemKind.UNAVAILABLE: "try again later",
}


def kind_of(reason: str, status: int) -> ProblemKind:
    """The kind of a reason (`quotaExceeded`, an operation's code), or else of the HTTP status."""
    if reason in _KINDS:
        return _KINDS[reason]
    if status == 429:
        return ProblemKind.THROTTLED
    if status in (401, 403):
        return ProblemKind.NOT_AUTHORISED
    # 409, 412: two processes changed one thing at once. 0: an unknown code of an operation.
    return ProblemKind.UNAVAILABLE if status in (0, 408, 409, 412) or status >= 500 else ProblemKind.BAD_REQUEST


def refusal(kind: ProblemKind, words: str, status: int = 0) -> CloudRefusal:
    """The CloudRefusal for Compute Engine's words. `status`: the HTTP status; 0 without an answer."""
    return cloud_refusal(kind, f"Compute Engine: {one_line(words)}; {_ADVICE[kind]}", str(status) if status else "")


@contextmanager
def mapped() -> Iterator[None]:
    """Turn every exception of the client library, and of the libraries below it, into CloudRefusal."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.protobuf.json_format import ParseError

    try:
        yield
    except GoogleAPICallError as error:
        status = int(error.code or 0)
        first = next((one for one in error.errors if isinstance(one, dict)), {})
        reason = str(first.get("reason") or error.reason or "")
        words = str(first.get("message") or error.message)
        raise refusal(kind_of(reason, status), f"{status} {reason}: {words}", status) from error
    except (TransportError, requests.RequestException) as error:
        raise refusal(ProblemKind.UNAVAILABLE, f"cannot be reached: {error}") from error
    except GoogleAuthError as error:
        raise refusal(ProblemKind.NOT_AUTHORISED, f"no credentials: {error}") from error
    except ParseError as error:
        words = "something in between (a proxy, a sign-in page) answers in its place"
        raise refusal(ProblemKind.UNAVAILABLE, words) from error
    except GoogleAPIError as error:
        raise refusal(ProblemKind.UNAVAILABLE, str(error)) from error
