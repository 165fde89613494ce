"""Classify a cloud's refusals by what helps against them, and turn them into our errors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.settings import Cloud

_MAX_CHARACTERS = 400
"""Limit for the characters of a cloud's message: AWS's UnauthorizedOperation contains thousands, encoded."""


class ProblemKind(StrEnum):
    """Why a call to a cloud failed, classified by what helps."""

    NO_CAPACITY = "no_capacity"
    """The pool is exhausted: wait for a while, and use the others."""
    QUOTA = "quota"
    """The account's limit is reached: request more from the cloud, or lower the target."""
    THROTTLED = "throttled"
    """Too many calls: wait."""
    NOT_AUTHORISED = "not_authorised"
    """Credentials are missing, expired or lack a permission: only a user can fix that."""
    BAD_REQUEST = "bad_request"
    """The cloud does not know an image, a subnet or a type of the fleet file."""
    UNAVAILABLE = "unavailable"
    """The cloud or the network has a fault: wait."""

    @property
    def may_spare_other_pools(self) -> bool:
        """Whether only some pools may be affected; problems of the other kinds concern every pool of the region."""
        return self in (ProblemKind.NO_CAPACITY, ProblemKind.QUOTA, ProblemKind.BAD_REQUEST)


_ADVICE = {
    ProblemKind.NO_CAPACITY: "try again later, or allow more types and places",
    ProblemKind.QUOTA: "request more (AWS: Service Quotas; Google: IAM & Admin, Quotas), or lower the target",
    ProblemKind.NOT_AUTHORISED: "check which account is used, and the permissions that docs/fleet-{cloud}.md lists",
    ProblemKind.BAD_REQUEST: "change the value that it names in the fleet file",
}


class CloudRefusal(FleetError):
    """The cloud refused a call, or could not be reached."""

    kind = ProblemKind.BAD_REQUEST
    code = ""
    """AWS's error code or botocore's exception; Compute Engine's HTTP status; empty without an answer."""


class CloudUnavailable(CloudRefusal, FleetUnavailable):
    """The cloud throttles, has no capacity, is at fault or cannot be reached."""


class CloudNotAuthorised(CloudRefusal, FleetNotAuthorised):
    """Credentials are missing or expired, or lack a permission."""


_ERRORS: dict[ProblemKind, type[CloudRefusal]] = {
    ProblemKind.QUOTA: CloudRefusal,
    ProblemKind.BAD_REQUEST: CloudRefusal,
    ProblemKind.NOT_AUTHORISED: CloudNotAuthorised,
}


def cloud_refusal(cloud: Cloud, kind: ProblemKind, said: str, code: str = "", advice: str = "") -> CloudRefusal:
    """Return the error for a refused call, whose class tells callers whether to wait or to report it to the user.

    Args:
        cloud: Name of the cloud.
        kind: The kind of the refusal.
        said: The cloud's message.
        code: The cloud's error code or HTTP status, or an empty string without an answer.
        advice: What the user can do, or an empty string for the usual advice for this kind.
    """
    advice = advice or _ADVICE.get(kind, "try again later").format(cloud=cloud)
    # All other refusals may be temporary, and callers wait.
    error = _ERRORS.get(kind, CloudUnavailable)(f"{one_line(said)}; {advice}")
    error.kind, error.code = kind, code
    return error


@contextmanager
def unless(*codes: str) -> Iterator[None]:
    """Suppress a CloudRefusal with one of these codes in the block; the rest of the block is skipped."""
    try:
        yield
    except CloudRefusal as refused:
        if refused.code not in codes:
            raise


def kind_by(patterns: Mapping[ProblemKind, str], code: str) -> ProblemKind | None:
    """Return the first kind whose pattern matches a cloud's error code, or None if no pattern does.

    Args:
        patterns: Kind → regular expression of the whole code, or of the part of it before a full stop.
        code: The error code.
    """
    # Accept any text after a full stop: AWS appends details there, as in InvalidAMIID.NotFound, and may add new ones.
    return next((kind for kind, pattern in patterns.items() if re.fullmatch(rf"({pattern})(\..*)?", code)), None)


def one_line(words: str) -> str:
    """Return a cloud's message on one line, cut off after `_MAX_CHARACTERS`."""
    line = " ".join(words.split())
    return line if len(line) <= _MAX_CHARACTERS else line[:_MAX_CHARACTERS] + "…"
