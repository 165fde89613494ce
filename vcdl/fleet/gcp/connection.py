"""Call Compute Engine through Google's own library, and classify its refusals."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.refusal import CloudRefusal, ProblemKind, cloud_refusal, kind_by

ENDPOINT_VARIABLE = "VCDL_GCE_ENDPOINT"
"""Environment variable with the address of a test server, http:

HOST:PORT, which is called without credentials.
"""
NOT_FOUND, CONFLICT = "404", "412"
"""Codes of a CloudRefusal. CONFLICT: another process changed the resource in between."""

_SCOPE = "https://www.googleapis.com/auth/compute"
_CALL_S = 60.0
"""Time-out of a call, in seconds: longer than a slow answer, and short enough that one dead region does not hold up a
pass."""
_WAIT_S = 150.0
"""Time-out of operations.wait, which answers after at most two minutes."""
_PATTERNS_BY_KIND = {
    ProblemKind.NO_CAPACITY: (
        ".*RESOURCE_POOL_EXHAUSTED.*|resourcePoolExhausted|insufficientCapacity|VM_MIN_COUNT_NOT_REACHED"
    ),
    ProblemKind.THROTTLED: (
        "(user)?[rR]ateLimitExceeded|RATE_LIMIT_EXCEEDED|concurrentLimitExceeded|CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"
    ),
    ProblemKind.QUOTA: "QUOTA_EXCEEDED|quotaExceeded|limitExceeded",
    ProblemKind.NOT_AUTHORISED: "PERMISSIONS_ERROR",
    ProblemKind.UNAVAILABLE: "resourceNotReady|RESOURCE_NOT_READY|RESOURCE_IN_USE_BY_ANOTHER_RESOURCE|INTERNAL_ERROR",
}
"""Kinds of problems by reason. A reason is more precise than a status: exceeded quotas and missing permissions are both
403."""


class Connection:
    """The connection to one project.

    Requests are dicts, and methods are named as in `instances.get`. Raises FleetError, FleetNotAuthorised.
    """

    def __init__(self, project: str) -> None:
        try:
            from google.cloud import compute_v1
        except ModuleNotFoundError as error:
            raise FleetError(
                "fleets on GCP need google-cloud-compute, which is not installed; run: pip install google-cloud-compute"
            ) from error
        self.project = project
        self._library: Any = compute_v1
        self._options = _options(os.environ.get(ENDPOINT_VARIABLE))
        self._clients: dict[str, Any] = {}
        self.clock_offset_s = 0.0
        """Seconds by which Compute Engine's clock is ahead of this machine's."""

    def call(self, method: str, **request: Any) -> Any:
        """Make a call, without the library's own retries of up to ten minutes.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        kind, _, name = method.partition(".")
        with _map_errors():
            if kind not in self._clients:
                # Use one client per kind of resource, as the library requires. Clients are kept, because each opens a
                # connection and gets a token.
                client = getattr(self._library, f"{kind.title().replace('_', '')}Client")
                self._clients[kind] = client(**self._options)
                self._clients[kind].transport._session.hooks["response"].append(self._note_date)
            call = getattr(self._clients[kind], name)
            return call(
                {"project": self.project, **request}, retry=None, timeout=_WAIT_S if name == "wait" else _CALL_S
            )

    def _note_date(self, response: Any, *_: Any, **__: Any) -> None:
        if date := response.headers.get("Date"):
            self.clock_offset_s = parsedate_to_datetime(date).timestamp() - time.time()

    def list_all(self, method: str, **request: Any) -> list[Any]:
        """Return all pages of a list.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        pages = self.call(method, **request)
        with _map_errors():
            return list(pages)

    def list_by_zone(self, kind: str, wanted: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        """Return the filtered `instances` or `disks` as (zone, resource), and why zones are unreachable.

        Raises:
            CloudRefusal: Compute Engine refuses the list, or cannot be reached.
        """
        found, away = [], {}
        for scope, resources in self.list_all(f"{kind}.aggregated_list", filter=wanted):
            zone = scope.removeprefix("zones/")
            # Otherwise an unreachable zone looks like an empty one, and its machines would count as preempted.
            if resources.warning.code == "UNREACHABLE":
                away[zone] = f"Compute Engine: {resources.warning.message or f'{zone} is unreachable'}"
            found += [(zone, resource) for resource in getattr(resources, kind)]
        return found, away

    def wait(self, operation: str, limit_s: float, region: str) -> Any:
        """Wait for an operation of a region, and return it.

        Raises:
            CloudRefusal: The wait failed, or took longer than `limit_s`.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            found = self.call("region_operations.wait", operation=operation, region=region)
            if found.status.name == "DONE":
                return found
            # Check the time only after an answer: one call waits up to two minutes, and its result counts even if the
            # time is over.
            if time.monotonic() >= deadline_s:
                raise refusal(ProblemKind.UNAVAILABLE, f"{operation} is not done after {limit_s:.0f} s")


def kind_of(reason: str, status: int) -> ProblemKind:
    """Return the kind of a reason (`quotaExceeded`, an operation's code), or else of an HTTP status."""
    if kind := kind_by(_PATTERNS_BY_KIND, reason):
        return kind
    if status == 429:
        return ProblemKind.THROTTLED
    if status in (401, 403):
        return ProblemKind.NOT_AUTHORISED
    # 409, 412: two processes changed one resource simultaneously. 0: an unknown code of an operation.
    return ProblemKind.UNAVAILABLE if status in (0, 408, 409, 412) or status >= 500 else ProblemKind.BAD_REQUEST


def errors_of(operation: Any) -> Iterator[tuple[Any, ProblemKind, str]]:
    """Yield the errors of a finished operation, with their kinds and messages."""
    for error in operation.error.errors:
        yield error, kind_of(error.code, operation.http_error_status_code), f"{error.code}: {error.message}"


def refusal(kind: ProblemKind, words: str, status: int = 0) -> CloudRefusal:
    """Return the CloudRefusal for Compute Engine's message. `status` is the HTTP status, or 0 without an answer."""
    return cloud_refusal("gcp", kind, f"Compute Engine: {words}", str(status or ""))


def _options(endpoint: str | None) -> dict[str, Any]:
    from google.api_core.client_options import ClientOptions
    from google.auth import default
    from google.auth.credentials import AnonymousCredentials

    if endpoint:
        return {"client_options": ClientOptions(api_endpoint=endpoint), "credentials": AnonymousCredentials()}
    with _map_errors():
        credentials, _ = default(scopes=[_SCOPE])
    return {"credentials": credentials}


@contextmanager
def _map_errors() -> Iterator[None]:
    """Convert every exception of the client library, and of the libraries below it, to a CloudRefusal."""
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
    # Handle this before its base class GoogleAuthError: a network failure is not a problem of
    # credentials.
    except (TransportError, requests.RequestException) as error:
        raise refusal(ProblemKind.UNAVAILABLE, f"cannot be reached: {error}") from error
    except GoogleAuthError as error:
        words = f"no credentials (`gcloud auth application-default login`, GOOGLE_APPLICATION_CREDENTIALS): {error}"
        raise refusal(ProblemKind.NOT_AUTHORISED, words) from error
    except ParseError as error:
        words = "something in between (a proxy, a sign-in page) answers instead"
        raise refusal(ProblemKind.UNAVAILABLE, words) from error
    except GoogleAPIError as error:
        raise refusal(ProblemKind.UNAVAILABLE, str(error)) from error
