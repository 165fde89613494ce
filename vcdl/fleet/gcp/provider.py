"""The Provider for Compute Engine. The cloud keeps nothing but machines and disks with the label `vcdl-fleet`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from vcdl.fleet.gcp.catalogue import MachineCatalogue
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.instances import GcpInstances
from vcdl.fleet.gcp.launch import BulkLaunch
from vcdl.fleet.gcp.refusal import CONFLICT, NOT_FOUND
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import DRAIN_TAG, FLEET_TAG, LaunchResult, Provider
from vcdl.fleet.refusal import CloudRefusal, CloudUnavailable
from vcdl.fleet.settings import FleetSettings

_THREADS = 8
"""Calls at the same time; fewer than the connections that the library keeps."""
_WRITE_ATTEMPTS = 5
"""Somebody else may write a machine's metadata between our reading and our writing."""
_SWEEP_S = 300.0


class GcpProvider(Provider):
    """A fleet of Spot machines.

    Raises FleetError without google-cloud-compute, FleetNotAuthorised without credentials.
    """

    def __init__(
        self,
        settings: FleetSettings,
        connection: Connection | None = None,
        clock: Callable[[], float] = time.time,
        sweep_every_s: float = 2.0,
    ) -> None:
        """`clock`: Unix time."""
        self._settings = settings
        self._connection = connection or Connection(settings.gcp_project or "")
        self._catalogue = MachineCatalogue(self._connection)
        self._instances = GcpInstances(self._connection, self._catalogue, clock)
        self._sweep_every_s = sweep_every_s
        self._pools: Mapping[Pool, InstanceType] = {}
        self._ours = f'labels.{FLEET_TAG} = "{settings.name}"'

    def pools(self) -> Mapping[Pool, InstanceType]:
        if not self._pools:
            self._pools = self._catalogue.pools(self._settings)
        return self._pools

    def find(self) -> tuple[Instance, ...]:
        """Also finds machines in regions of the project that the fleet file no longer names."""
        return self._instances.list_with_gone(self._ours)

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> LaunchResult:
        launch = BulkLaunch(self._connection, self._catalogue, self._instances, self._settings, token)
        return launch.run(pools, self.pools(), units, user_data)

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        """Add an item to each machine's metadata."""
        _each(ids, lambda id: self._mark(id, str(int(since_s))))

    def terminate(self, ids: Sequence[str]) -> None:
        """Delete machines with their disks. A refusal does not stop the others; the first one is raised at the end."""
        _each(ids, self._delete)

    def leftovers(self) -> tuple[str, ...]:
        """Machines in any state, and disks without a machine."""
        instances = sorted(instance.id for instance in self._instances.list(self._ours))
        return (*(_line("instance", id) for id in instances), *(_line("disk", id) for id in self._disks()))

    def sweep(self) -> tuple[str, ...]:
        """Also waits for bulk inserts under way: one that a killed process has started makes machines after it."""
        deadline_s = time.monotonic() + _SWEEP_S
        inserts = self._inserts_under_way()
        deleted: set[str] = set()
        while True:
            try:
                inserts &= self._inserts_under_way()
                new = [it.id for it in self._instances.list(self._ours) if it.id not in deleted]
                self.terminate(new)
                deleted.update(new)
                for id in self._disks():
                    self._delete_disk(id)
                left = (*self.leftovers(), *(_line("bulk insert", id) for id in sorted(inserts)))
            except CloudUnavailable:
                if time.monotonic() >= deadline_s:
                    raise
            else:
                if not left or time.monotonic() >= deadline_s:
                    return left
            time.sleep(self._sweep_every_s)

    def close(self) -> None:
        self._connection.close()

    def _disks(self) -> list[str]:
        list_all = self._connection.disks.aggregated_list
        shown = self._connection.listed_by_zone(list_all, "disks", filter=self._ours)
        return sorted(f"{zone}/{disk.name}" for zone, disk in shown if not disk.users)

    def _inserts_under_way(self) -> set[str]:
        """REGION/OPERATION of the bulk inserts in the fleet's regions; they do not tell whose they are."""
        list_all = self._connection.region_operations.list
        wanted = '(operationType = "bulkInsert") (status != "DONE")'
        return {
            f"{region}/{operation.name}"
            for region in {place.region for place in self._settings.places}
            for operation in self._connection.listed(list_all, region=region, filter=wanted)
        }

    def _delete(self, id: str) -> None:
        zone, name = id.split("/")
        with _unless_gone():
            self._connection.call(self._connection.instances.delete_unary, zone=zone, instance=name)

    def _delete_disk(self, id: str) -> None:
        zone, name = id.split("/")
        with _unless_gone():
            self._connection.call(self._connection.disks.delete_unary, zone=zone, disk=name)

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
        items = [{"key": item.key, "value": item.value} for item in metadata.items]
        if any(item["key"] == DRAIN_TAG for item in items):
            return
        written = {"fingerprint": metadata.fingerprint, "items": [*items, {"key": DRAIN_TAG, "value": mark}]}
        clients.call(clients.instances.set_metadata_unary, zone=zone, instance=name, metadata_resource=written)


def _each(ids: Sequence[str], act: Callable[[str], None]) -> None:
    """Call it for all ids, in threads; then raise the first refusal."""

    def attempt(id: str) -> CloudRefusal | None:
        try:
            act(id)
        except CloudRefusal as refused:
            return refused
        return None

    with ThreadPoolExecutor(_THREADS) as threads:
        refusals = [refused for refused in threads.map(attempt, ids) if refused is not None]
    if refusals:
        raise refusals[0]


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except CloudRefusal as refused:
        if refused.code != NOT_FOUND:
            raise


def _line(kind: str, id: str) -> str:
    place, name = id.split("/")
    return f"{kind} {name} in {place}"
