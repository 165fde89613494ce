"""What Compute Engine says no with, told apart by what helps: as an HTTP error, or as the error of an operation."""

from collections.abc import Iterator
from contextlib import contextmanager

from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.provider import ProblemKind

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
"""By reason, which goes before the HTTP status: a quota is a 403, and a shortage a 503, as a lack of rights and a fault are."""

_ADVICE = {
    ProblemKind.NO_CAPACITY: "try later, or allow more types and zones",
    ProblemKind.QUOTA: "ask for more quota (IAM & Admin, Quotas), or lower the target",
    ProblemKind.THROTTLED: "wait, and try again",
    ProblemKind.NOT_AUTHORISED: (
        "check which account is used (gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS) and its roles;"
        " docs/fleet-gcp.md lists what it needs"
    ),
    ProblemKind.BAD_REQUEST: "mend the fleet file",
    ProblemKind.UNAVAILABLE: "wait, and try again",
}

_LONGEST_WORDS = 400


class Refused(FleetError):
    """Compute Engine refused a call; `kind` says what helps, `status` is the HTTP status, 0 without one."""

    def __init__(self, kind: ProblemKind, words: str, status: int = 0) -> None:
        super().__init__(f"Compute Engine: {words}; {_ADVICE[kind]}")
        self.kind = kind
        self.words = words
        self.status = status


class RefusedForNow(Refused, FleetUnavailable):
    """It throttles, is at fault or out of reach."""


class RefusedAccess(Refused, FleetNotAuthorised):
    """It does not know us, or does not let us."""


def kind_of(reason: str, status: int) -> ProblemKind:
    """What kind of refusal a reason is (`quotaExceeded`, an operation's code), else what its HTTP status is."""
    if reason in _KINDS:
        return _KINDS[reason]
    if status == 429:
        return ProblemKind.THROTTLED
    if status in (401, 403):
        return ProblemKind.NOT_AUTHORISED
    # 409, 412: two changed one thing at once. 0: an operation's code that says nothing to us.
    return ProblemKind.UNAVAILABLE if status in (0, 408, 409, 412) or status >= 500 else ProblemKind.BAD_REQUEST


def refused(kind: ProblemKind, words: str, status: int = 0) -> Refused:
    """The error for it, of the class that a caller of a Provider expects."""
    words = " ".join(words.split())[:_LONGEST_WORDS]
    if kind == ProblemKind.NOT_AUTHORISED:
        return RefusedAccess(kind, words, status)
    if kind in (ProblemKind.THROTTLED, ProblemKind.UNAVAILABLE):
        return RefusedForNow(kind, words, status)
    return Refused(kind, words, status)


@contextmanager
def mapped() -> Iterator[None]:
    """Turn every exception of the client library, and of what it stands on, into Refused."""
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
        raise refused(kind_of(reason, status), f"{status} {reason}: {words}", status) from error
    except (TransportError, requests.RequestException) as error:
        raise refused(ProblemKind.UNAVAILABLE, f"cannot be reached: {error}") from error
    except GoogleAuthError as error:
        raise refused(ProblemKind.NOT_AUTHORISED, f"no credentials: {error}") from error
    except ParseError as error:
        words = "something in between (a proxy, a sign-in page) answers in its place"
        raise refused(ProblemKind.UNAVAILABLE, words) from error
    except GoogleAPIError as error:
        raise refused(ProblemKind.UNAVAILABLE, str(error)) from error
