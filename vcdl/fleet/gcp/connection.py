"""The connection to Compute Engine: the clients of google-cloud-compute, their credentials, and how a call is made."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.gcp.refusal import mapped, refusal
from vcdl.fleet.provider import ProblemKind

ENDPOINT_VARIABLE = "VCDL_GCE_ENDPOINT"
"""The address of a stand-in for Compute Engine, http://HOST:PORT, which is called without credentials."""

_SCOPE = "https://www.googleapis.com/auth/compute"
_CALL_S = 60.0
"""Time-out of a call."""
_WAIT_S = 150.0
"""Time-out of operations.wait, which answers after two minutes at the latest."""


class Connection:
    """One project. Requests are plain dicts with the fields of the library's documentation, answers are its messages.

    Raises FleetError without the library, FleetNotAuthorised without credentials.
    """

    def __init__(self, project: str, environment: Mapping[str, str] = os.environ) -> None:
        try:
            from google.cloud import compute_v1
        except ModuleNotFoundError as error:
            raise FleetError(
                "fleets on GCP need google-cloud-compute, which is not installed; run: pip install google-cloud-compute"
            ) from error
        self.project = project
        options = _options(environment.get(ENDPOINT_VARIABLE))
        self.instances = compute_v1.InstancesClient(**options)
        self.region_instances = compute_v1.RegionInstancesClient(**options)
        self.disks = compute_v1.DisksClient(**options)
        self.machine_types = compute_v1.MachineTypesClient(**options)
        self.regions = compute_v1.RegionsClient(**options)
        self.images = compute_v1.ImagesClient(**options)
        self.global_operations = compute_v1.GlobalOperationsClient(**options)
        self.region_operations = compute_v1.RegionOperationsClient(**options)
        self.zone_operations = compute_v1.ZoneOperationsClient(**options)

    def call(self, method: Callable[..., Any], timeout_s: float = _CALL_S, **request: Any) -> Any:
        """Make a call of one of the clients. Raises CloudRefusal.

        Without the library's own retries, which take up to ten minutes: the next pass tries again soon anyway.
        """
        with mapped():
            return method({"project": self.project, **request}, retry=None, timeout=timeout_s)

    def listed(self, method: Callable[..., Any], **request: Any) -> list[Any]:
        """All pages of a list. Raises CloudRefusal."""
        with mapped():
            return list(method({"project": self.project, **request}, retry=None, timeout=_CALL_S))

    def listed_by_zone(
        self, method: Callable[..., Any], kind: str, **request: Any
    ) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        """(zone, resource) of an aggregated list, with all its pages; and why some zones are unreachable.

        Raises CloudRefusal.
        """
        found, away = [], {}
        for scope, resources in self.listed(method, **request):
            zone = scope.removeprefix("zones/")
            if resources.warning.code == "UNREACHABLE":
                away[zone] = f"Compute Engine: {resources.warning.message or f'{zone} is unreachable'}"
            found += [(zone, resource) for resource in getattr(resources, kind)]
        return found, away

    def wait(self, method: Callable[..., Any], operation: str, limit_s: float, **place: str) -> Any:
        """Wait for an operation; returns it. Raises CloudRefusal, also if it is not done after `limit_s`.

        The library's own waiting polls the public host. operations.wait is best effort, so it is repeated.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            found = self.call(method, timeout_s=_WAIT_S, operation=operation, **place)
            if found.status.name == "DONE":
                return found
            if time.monotonic() >= deadline_s:
                raise refusal(ProblemKind.UNAVAILABLE, f"{operation} is not done after {limit_s:.0f} s")

    def close(self) -> None:
        """Close the connections."""
        for client in (
            self.instances,
            self.region_instances,
            self.disks,
            self.machine_types,
            self.regions,
            self.images,
            self.global_operations,
            self.region_operations,
            self.zone_operations,
        ):
            client.transport.close()


def _options(endpoint: str | None) -> dict[str, Any]:
    from google.api_core.client_options import ClientOptions
    from google.auth import default
    from google.auth.credentials import AnonymousCredentials

    if endpoint:
        return {"client_options": ClientOptions(api_endpoint=endpoint), "credentials": AnonymousCredentials()}
    with mapped():
        credentials, _ = default(scopes=[_SCOPE])
    return {"credentials": credentials}
