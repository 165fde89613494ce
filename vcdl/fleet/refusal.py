"""A cloud's refusals as errors of ours, the same for both clouds."""

from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.provider import ProblemKind

_MAX_CHARACTERS = 400
"""Limit for a cloud's message: AWS's UnauthorizedOperation comes with an encoded one of thousands."""


class CloudRefusal(FleetError):
    """A call that the cloud refused, or that did not reach it."""

    def __init__(self, message: str, kind: ProblemKind, code: str = "") -> None:
        """`code`: AWS's error code or botocore's exception; Compute Engine's HTTP status, empty without an answer."""
        super().__init__(message)
        self.kind = kind
        self.code = code


class CloudUnavailable(CloudRefusal, FleetUnavailable):
    """The cloud throttles, has no capacity, is at fault or cannot be reached."""


class CloudNotAuthorised(CloudRefusal, FleetNotAuthorised):
    """Credentials are missing or expired, or lack a right."""


_ERRORS: dict[ProblemKind, type[CloudRefusal]] = {
    ProblemKind.NO_CAPACITY: CloudUnavailable,
    ProblemKind.THROTTLED: CloudUnavailable,
    ProblemKind.UNAVAILABLE: CloudUnavailable,
    ProblemKind.NOT_AUTHORISED: CloudNotAuthorised,
}


def cloud_refusal(kind: ProblemKind, message: str, code: str = "") -> CloudRefusal:
    """The error of the class that callers of a Provider expect for this kind."""
    return _ERRORS.get(kind, CloudRefusal)(message, kind, code)


def one_line(words: str) -> str:
    """A cloud's words on one line of bounded length."""
    line = " ".join(words.split())
    return line if len(line) <= _MAX_CHARACTERS else line[:_MAX_CHARACTERS] + "…"
