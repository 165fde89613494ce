"""The Provider for Compute Engine.

A fleet consists only of machines and disks with the fleet's label: there are no templates or groups.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from vcdl.errors import FleetNotAuthorised
from vcdl.fleet.gcp.catalogue import MachineCatalogue
from vcdl.fleet.gcp.connection import CONFLICT, NOT_FOUND, Connection
from vcdl.fleet.gcp.instances import GcpInstances
from vcdl.fleet.gcp.launch import BulkLaunch, metadata_items
from vcdl.fleet.gcp.prices import GcpPrices
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.prices import PriceTable
from vcdl.fleet.provider import (
    FLEET_TAG,
    LaunchResult,
    Leftover,
    Provider,
    SweepPace,
    TagScan,
    ask_all,
    raise_first,
)
from vcdl.fleet.refusal import CloudRefusal, ProblemKind, unless
from vcdl.fleet.settings import FleetSettings

GCP_KEY_VARIABLE = "VCDL_GCP_API_KEY"
_WRITE_ATTEMPTS = 5
"""Attempts to write a machine's metadata, because another process may write between our reading and our writing."""


class GcpProvider(Provider):
    """Manages a fleet of machines of Compute Engine.

    Raises:
        FleetError: The client library is missing.
        FleetNotAuthorised: There are no credentials.
    """

    shows_within_s = 120.0
    """Most seconds for which a new machine may not be listed; few, since a launch lists its machines itself."""

    metadata_service = "gcp"

    @classmethod
    def of_fleet(cls, settings: FleetSettings) -> Self:
        return cls(settings)

    @classmethod
    def price_source(cls, environment: Mapping[str, str], known: PriceTable | None = None) -> GcpPrices:
        # The price catalogue does not belong to a project, so the fleet's credentials do not work for it.
        key = environment.get(GCP_KEY_VARIABLE, "").strip()
        if not key:
            raise FleetNotAuthorised(
                f"Google's price catalogue requires an API key in the environment variable {GCP_KEY_VARIABLE}: create "
                "one in the console under APIs & Services, Credentials, in a project with the Cloud Billing API enabled"
            )
        return GcpPrices(key)

    def __init__(
        self, settings: FleetSettings, clock: Callable[[], float] = time.time, pace: SweepPace | None = None
    ) -> None:
        """Prepare the provider.

        Args:
            settings: The fleet file.
            clock: Returns Unix time.
            pace: How a sweep waits, or None for the usual times.
        """
        self.pace = pace or SweepPace(every_s=2.0, empty_looks=1)
        self.settings = settings
        self._connection = Connection(settings.gcp_project or "")
        self._catalogue = MachineCatalogue(self._connection)
        self._instances = GcpInstances(self._connection, self._catalogue, clock)
        self._inserts: set[Leftover] = set()
        self._deleted: set[Leftover] = set()
        self._ours = f'labels.{FLEET_TAG} = "{settings.name}"'

    @property
    def clock_offset_s(self) -> float:  # type: ignore[override]
        return self._connection.clock_offset_s

    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        return self._catalogue.pools(region, self.settings)

    def find(self) -> tuple[Instance, ...]:
        """Query the fleet's machines in all regions, also in those that the fleet file does not name; set `away`."""
        found = self._instances.list_with_gone(self._ours)
        self.away = {zone.rsplit("-", 1)[0]: why for zone, why in self._instances.away.items()}
        return found

    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        items = metadata_items(user_data, self.marks(until_s))
        launch = BulkLaunch(self._connection, self._catalogue, self._instances, self.settings, token, items)
        return launch.run(pools, self.pools(), units)

    def lease(self, ids: Sequence[str], until_s: float) -> None:
        """Write the lease into each machine's metadata; machines that no longer exist are ignored."""
        marks = self.marks(until_s)
        raise_first(ask_all(ids, lambda id: self._mark(id, marks))[1])

    def console(self, id: str) -> str:
        return str(self._connection.call("instances.get_serial_port_output", **_parse_id(id)).contents)

    def terminate(self, ids: Sequence[str]) -> None:
        """Request the deletion of machines and their disks.

        A refusal does not stop the others; the first one is raised at the end.
        """
        raise_first(ask_all(ids, self._delete)[1])

    def look(self, every_fleet: bool = False) -> TagScan:
        ours = f"labels.{FLEET_TAG}:*" if every_fleet else self._ours
        # Look at the inserts before the machines are listed, so that machines of one that has just ended are found.
        if self._inserts:
            self._inserts &= self._inserts_under_way()
        machines, away = self._connection.list_by_zone("instances", ours)
        disks, _ = self._connection.list_by_zone("disks", ours)
        return TagScan(
            (
                *(Leftover("instance", machine.name, zone) for zone, machine in machines),
                # Leave out a disk that is in use: it is deleted with its machine.
                *(Leftover("disk", disk.name, zone) for zone, disk in disks if not disk.users),
                *sorted(self._inserts, key=str),
            ),
            tuple(away.values()),
        )

    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        def delete(one: Leftover) -> None:
            self._connection.call(f"{one.noun}s.delete_unary", zone=one.place, **{one.noun: one.id})

        ends_by_itself = "bulk insert"
        # Skip disks whose deletion was requested before: a second request is refused while the first runs.
        rest = (one for one in leftovers if one.noun != ends_by_itself and one not in self._deleted)
        deleted, refusals = ask_all(rest, delete)
        self._deleted.update(deleted)
        return frozenset(one for one, it in refusals.items() if it.kind is ProblemKind.NOT_AUTHORISED)

    def begin_sweep(self) -> None:
        """Find the bulk inserts in progress, so that the sweep waits for them.

        An insert that a killed process has started creates its machines only later.
        """
        self._deleted.clear()
        self._inserts = self._inserts_under_way()

    def _inserts_under_way(self) -> set[Leftover]:
        """Return the bulk inserts in progress in the fleet's regions, of any fleet: they do not name their fleet.

        A region that cannot be queried keeps those that were known.
        """
        wanted = '(operationType = "bulkInsert") (status != "DONE")'
        found: set[Leftover] = set()
        for region in self.settings.regions:
            try:
                inserts = self._connection.list_all("region_operations.list", region=region, filter=wanted)
                found |= {Leftover("bulk insert", one.name, region) for one in inserts}
            except CloudRefusal:  # listing the machines reports the error
                found |= {one for one in self._inserts if one.place == region}
        return found

    def _delete(self, id: str) -> None:
        with unless(NOT_FOUND):
            self._connection.call("instances.delete_unary", **_parse_id(id))

    def _mark(self, id: str, marks: Mapping[str, str]) -> None:
        """Set items of a machine's metadata, by reading all items and writing all back; ignore a missing machine.

        Compute Engine refuses the write if another process wrote in between; then this reads and writes again.

        Args:
            id: The machine.
            marks: The items, key → value.

        Raises:
            CloudRefusal: All `_WRITE_ATTEMPTS` attempts were refused, or one for another reason.
        """
        with unless(NOT_FOUND):
            for left in reversed(range(_WRITE_ATTEMPTS)):
                with unless(*((CONFLICT,) if left else ())):
                    metadata = self._connection.call("instances.get", **_parse_id(id)).metadata
                    # Write all items, because set_metadata replaces them and the user data must not be lost.
                    items = {**{it.key: it.value for it in metadata.items}, **marks}
                    listed = [{"key": key, "value": value} for key, value in items.items()]
                    written = {"fingerprint": metadata.fingerprint, "items": listed}
                    self._connection.call("instances.set_metadata_unary", **_parse_id(id), metadata_resource=written)
                    return


def _parse_id(id: str) -> dict[str, str]:
    zone, name = id.split("/")
    return {"zone": zone, "instance": name}
