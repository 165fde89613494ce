"""The Provider for Compute Engine. The cloud keeps nothing but machines and disks with the label `vcdl-fleet`."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from vcdl.fleet.gcp.catalogue import MachineCatalogue
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.images import find_images, make_image
from vcdl.fleet.gcp.instances import GcpInstances
from vcdl.fleet.gcp.launch import BulkLaunch
from vcdl.fleet.gcp.refusal import CONFLICT, NOT_FOUND
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import (
    FLEET_TAG,
    LEASE_TAG,
    BakedImage,
    LaunchResult,
    Leftover,
    Look,
    ProblemKind,
    Provider,
    baking_name,
)
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.sweep import SweepPace, sweep

_THREADS = 8
"""Calls at the same time; fewer than the connections that the library keeps."""
_WRITE_ATTEMPTS = 5
"""Somebody else may write a machine's metadata between our reading and our writing."""
_T = TypeVar("_T")


class GcpProvider(Provider):
    """A fleet of Spot machines.

    Raises FleetError without google-cloud-compute, FleetNotAuthorised without credentials.
    """

    def __init__(
        self,
        settings: FleetSettings,
        connection: Connection | None = None,
        clock: Callable[[], float] = time.time,
        pace: SweepPace | None = None,
    ) -> None:
        """`clock`: Unix time."""
        self._settings = settings
        self._connection = connection or Connection(settings.gcp_project or "")
        self._catalogue = MachineCatalogue(self._connection)
        self._instances = GcpInstances(self._connection, self._catalogue, clock)
        self._pace = pace or SweepPace(every_s=2.0, empty_looks=1)
        self._inserts: set[tuple[str, str]] = set()
        self._deleted: set[Leftover] = set()
        self._pools: Mapping[Pool, InstanceType] = {}
        self._ours = f'labels.{FLEET_TAG} = "{settings.name}"'

    def pools(self) -> Mapping[Pool, InstanceType]:
        regions = {place.region for place in self._settings.places}
        if {pool.region for pool in self._pools} != regions:
            self._pools = self._catalogue.pools(self._settings)
        return {pool: kind for pool, kind in self._pools.items() if pool.region not in self.away}

    def find(self) -> tuple[Instance, ...]:
        """Also finds machines in regions of the project that the fleet file no longer names."""
        found = self._instances.list_with_gone(self._ours)
        self.away = {zone.rsplit("-", 1)[0]: why for zone, why in self._instances.away.items()}
        return found

    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        launch = BulkLaunch(self._connection, self._catalogue, self._instances, self._settings, token, until_s)
        return launch.run(pools, self.pools(), units, user_data)

    def lease(self, ids: Sequence[str], until_s: float) -> None:
        """Write an item into each machine's metadata."""
        _each(ids, lambda id: self._mark(id, str(int(until_s))))

    def console(self, id: str) -> str:
        zone, name = id.split("/")
        clients = self._connection
        return str(clients.call(clients.instances.get_serial_port_output, zone=zone, instance=name).contents)

    def terminate(self, ids: Sequence[str]) -> None:
        """Delete machines with their disks. A refusal does not stop the others; the first one is raised at the end."""
        _each(ids, self._delete)

    def look(self, every_fleet: bool = False) -> Look:
        baking = f'labels.{FLEET_TAG} = "{baking_name(self._settings.name)}"'
        ours = f"labels.{FLEET_TAG}:*" if every_fleet else f"({self._ours}) OR ({baking})"
        if self._inserts:  # before the machines: those of one that has ended can then be seen
            self._inserts &= self._inserts_under_way()
        machines, away = self._listed(self._connection.instances, "instances", ours)
        disks, _ = self._listed(self._connection.disks, "disks", ours)
        images = find_images(self._connection, ours) if every_fleet else ()
        return Look(
            (
                *(Leftover("instance", machine.name, zone) for zone, machine in machines),
                *(Leftover("disk", disk.name, zone) for zone, disk in disks if not disk.users),
                *(Leftover("bulk insert", name, region) for region, name in sorted(self._inserts)),
                *(Leftover("image", image.id, image.region) for image in images),
            ),
            tuple(away.values()),
        )

    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        clients = self._connection
        denied: set[Leftover] = set()

        def delete(one: Leftover) -> None:
            try:
                if one.noun == "instance":
                    clients.call(clients.instances.delete_unary, zone=one.place, instance=one.id)
                elif one.noun == "disk":
                    clients.call(clients.disks.delete_unary, zone=one.place, disk=one.id)
                elif one.noun == "image":
                    clients.call(clients.images.delete_unary, image=one.id.rsplit("/", 1)[-1])
            except CloudRefusal as refused:
                if refused.kind is ProblemKind.NOT_AUTHORISED:
                    denied.add(one)
            else:
                self._deleted.add(one)

        _each([one for one in leftovers if one not in self._deleted], delete)
        return frozenset(denied)

    def begin_sweep(self) -> None:
        """Note the bulk inserts under way: one that a killed process has started makes machines after it."""
        self._deleted.clear()
        self._inserts = self._inserts_under_way()

    def images(self) -> tuple[BakedImage, ...]:
        return find_images(self._connection, self._ours)

    def make_image(self, instance: Instance, setup: str, base: str) -> None:
        make_image(self._connection, self._settings, instance.id, setup, base)

    def copy_image(self, image: BakedImage, region: str) -> None:
        """Does nothing: it is there."""

    def sweep(self) -> tuple[str, ...]:
        return sweep(self, self._pace)

    def close(self) -> None:
        self._connection.close()

    def _listed(self, client: Any, kind: str, wanted: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        return self._connection.listed_by_zone(client.aggregated_list, kind, filter=wanted)

    def _inserts_under_way(self) -> set[tuple[str, str]]:
        """(region, operation) of the bulk inserts in the fleet's regions; they do not tell whose they are."""
        list_all = self._connection.region_operations.list
        wanted = '(operationType = "bulkInsert") (status != "DONE")'
        found: set[tuple[str, str]] = set()
        for region in {place.region for place in self._settings.places}:
            try:
                found |= {(region, one.name) for one in self._connection.listed(list_all, region=region, filter=wanted)}
            except CloudRefusal:  # the look at the machines tells it
                found |= {(place, name) for place, name in self._inserts if place == region}
        return found

    def _delete(self, id: str) -> None:
        zone, name = id.split("/")
        with _unless_gone():
            self._connection.call(self._connection.instances.delete_unary, zone=zone, instance=name)

    def _mark(self, id: str, mark: str) -> None:
        zone, name = id.split("/")
        with _unless_gone():
            for attempt in range(1, _WRITE_ATTEMPTS + 1):
                try:
                    self._write_mark(zone, name, mark)
                except CloudRefusal as refused:
                    if refused.code != CONFLICT or attempt == _WRITE_ATTEMPTS:
                        raise
                else:
                    return

    def _write_mark(self, zone: str, name: str, mark: str) -> None:
        """Read all of the metadata and write it back; Compute Engine refuses if somebody else wrote it in between."""
        clients = self._connection
        metadata = clients.call(clients.instances.get, zone=zone, instance=name).metadata
        items = [{"key": item.key, "value": item.value} for item in metadata.items if item.key != LEASE_TAG]
        written = {"fingerprint": metadata.fingerprint, "items": [*items, {"key": LEASE_TAG, "value": mark}]}
        clients.call(clients.instances.set_metadata_unary, zone=zone, instance=name, metadata_resource=written)


def _each(items: Iterable[_T], act: Callable[[_T], None]) -> None:
    """Call it for all of them, in threads; then raise the first refusal."""

    def attempt(item: _T) -> CloudRefusal | None:
        try:
            act(item)
        except CloudRefusal as refused:
            return refused
        return None

    with ThreadPoolExecutor(_THREADS) as threads:
        refusals = [refused for refused in threads.map(attempt, items) if refused is not None]
    if refusals:
        raise refusals[0]


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except CloudRefusal as refused:
        if refused.code != NOT_FOUND:
            raise
