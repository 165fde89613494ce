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
"""Environment variable with the address of a test server, `http://HOST:PORT`, which is called without credentials."""
NOT_FOUND, CONFLICT = "404", "412"
"""Values of `CloudRefusal.code`. CONFLICT: another process changed the resource between our reading and our writing."""

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
"""Kind of a problem → regular expression of Google's reasons. They are more precise than the HTTP status, which is 403
for an exceeded quota as well as for a missing permission."""


class Connection:
    """Calls Compute Engine for one GCP project; each client of Google's library is opened at its first use."""

    def __init__(self, project: str) -> None:
        """Find the credentials, without a call to Compute Engine.

        Args:
            project: Id of the GCP project.

        Raises:
            FleetError, FleetNotAuthorised: The client library or the credentials are missing.
        """
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
        """Seconds by which Compute Engine's clock was ahead of this machine's at the last answer."""

    def call(self, method: str, **request: Any) -> Any:
        """Make a call and return its answer. The library's own retries, of up to ten minutes, are switched off.

        Args:
            method: Resource and method, such as `instances.get`.
            request: Fields of the request, without the project.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        kind, _, name = method.partition(".")
        with _map_errors():
            if kind not in self._clients:
                # The library has a client for each kind of resource. Keep it, because each new one opens a connection
                # and requests a token.
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
        """Make a call that lists resources, and return those of all pages.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        pages = self.call(method, **request)
        with _map_errors():
            return list(pages)

    def list_by_zone(self, kind: str, wanted: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        """List resources in all zones of the project.

        Args:
            kind: `instances` or `disks`.
            wanted: The filter that selects them.

        Returns:
            Pairs of zone and resource; and each unreachable zone → the reason.

        Raises:
            CloudRefusal: Compute Engine refuses the list, or cannot be reached.
        """
        found, away = [], {}
        for scope, resources in self.list_all(f"{kind}.aggregated_list", filter=wanted):
            zone = scope.removeprefix("zones/")
            # Report an unreachable zone, which otherwise looks like an empty one: its machines would count as ended.
            if resources.warning.code == "UNREACHABLE":
                away[zone] = f"Compute Engine: {resources.warning.message or f'{zone} is unreachable'}"
            found += [(zone, resource) for resource in getattr(resources, kind)]
        return found, away

    def wait(self, operation: str, limit_s: float, region: str) -> Any:
        """Wait until an operation of a region is done, and return it, whether it has succeeded or not (`errors_of`).

        Args:
            operation: Name of the operation.
            limit_s: Seconds to wait; the last call may exceed them by two minutes.
            region: The region.

        Raises:
            CloudRefusal: A call failed, or the operation is not done after `limit_s`.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            found = self.call("region_operations.wait", operation=operation, region=region)
            if found.status.name == "DONE":
                return found
            # Check the time only after an answer: a call waits for up to two minutes, and an operation that is done by
            # then counts even if the time is over.
            if time.monotonic() >= deadline_s:
                raise refusal(ProblemKind.UNAVAILABLE, f"{operation} is not done after {limit_s:.0f} s")


def kind_of(reason: str, status: int) -> ProblemKind:
    """Classify an error of Compute Engine.

    Args:
        reason: The reason, such as `quotaExceeded`, or the code of an operation's error.
        status: The HTTP status, which decides if the reason is unknown; 0 for none.
    """
    if kind := kind_by(_PATTERNS_BY_KIND, reason):
        return kind
    if status == 429:
        return ProblemKind.THROTTLED
    if status in (401, 403):
        return ProblemKind.NOT_AUTHORISED
    # 409, 412: two processes changed one resource simultaneously. 0: an unknown code of an operation.
    return ProblemKind.UNAVAILABLE if status in (0, 408, 409, 412) or status >= 500 else ProblemKind.BAD_REQUEST


def errors_of(operation: Any) -> Iterator[tuple[Any, ProblemKind, str]]:
    """Yield each error of a finished operation, with its kind and a message; nothing if it has succeeded."""
    for error in operation.error.errors:
        yield error, kind_of(error.code, operation.http_error_status_code), f"{error.code}: {error.message}"


def refusal(kind: ProblemKind, words: str, status: int = 0) -> CloudRefusal:
    """Return the CloudRefusal for an error of Compute Engine; `status` is the HTTP status, or 0 without an answer."""
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
    """Raise a CloudRefusal for any exception of the client library, or of the libraries that it uses, in the block."""
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
