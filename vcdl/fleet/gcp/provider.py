"""The fleet's machines on Compute Engine. What there is carries the label `vcdl-fleet`; nothing else is kept in the cloud."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.found import Found
from vcdl.fleet.gcp.launch import Launch
from vcdl.fleet.gcp.machines import Machines
from vcdl.fleet.gcp.refusal import Refused, RefusedForNow
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import DRAIN_TAG, FLEET_TAG, Launched, Provider
from vcdl.fleet.settings import FleetSettings

_AT_ONCE = 8
"""Calls under way at the same time; below the connections that the library keeps."""
_WRITE_ATTEMPTS = 5
"""Somebody else may write a machine's metadata between our reading and our writing."""
_SWEEP_S = 300.0
_NOT_FOUND = 404
_WRITTEN_MEANWHILE = 412


class GcpProvider(Provider):
    """A fleet on Compute Engine; `now` is Unix time. See Provider.

    Raises FleetError without google-cloud-compute, FleetNotAuthorised without credentials.
    """

    def __init__(
        self,
        settings: FleetSettings,
        connection: Connection | None = None,
        now: Callable[[], float] = time.time,
        look_every_s: float = 2.0,
    ) -> None:
        self._settings = settings
        self._connection = connection or Connection(settings.gcp_project or "")
        self._machines = Machines(self._connection)
        self._found = Found(self._connection, self._machines, now)
        self._look_every_s = look_every_s
        self._pools: Mapping[Pool, InstanceType] = {}
        self._ours = f'labels.{FLEET_TAG} = "{settings.name}"'

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Each type in each zone."""
        if not self._pools:
            self._pools = self._machines.pools(self._settings)
        return self._pools

    def find(self) -> tuple[Instance, ...]:
        """In all regions, also those that are no places of the fleet any more; with the endings that vcdl/fleet/gcp/found.py tells of."""
        return self._found.with_the_gone(self._ours)

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        """By regional bulk inserts, the pools that can be asked together together, in the order in which they are given."""
        launch = Launch(self._connection, self._machines, self._found, self._settings, token)
        return launch.run(pools, self.pools(), units, user_data)

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        """An item of each machine's metadata."""
        _each(ids, lambda id: self._mark(id, str(int(since_s))))

    def terminate(self, ids: Sequence[str]) -> None:
        """Delete the machines, with their disks. One that cannot be does not keep the others: the first refusal is raised at the end."""
        _each(ids, self._delete)

    def leftovers(self) -> tuple[str, ...]:
        """Machines in whatever state, and disks that hang on none."""
        instances = sorted(instance.id for instance in self._found.listed(self._ours))
        return (*(_line("instance", id) for id in instances), *(_line("disk", id) for id in self._disks()))

    def sweep(self) -> tuple[str, ...]:
        """Also waits for bulk inserts under way: one that a killed process began makes machines after it."""
        deadline_s = time.monotonic() + _SWEEP_S
        inserts = self._inserts_under_way()
        asked: set[str] = set()
        while True:
            try:
                inserts &= self._inserts_under_way()
                new = [id for id in self._ids() if id not in asked]
                self.terminate(new)
                asked.update(new)
                for id in self._disks():
                    self._delete_disk(id)
                left = (*self.leftovers(), *(_line("bulk insert", id) for id in sorted(inserts)))
            except RefusedForNow:
                if time.monotonic() >= deadline_s:
                    raise
            else:
                if not left or time.monotonic() >= deadline_s:
                    return left
            time.sleep(self._look_every_s)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _ids(self) -> tuple[str, ...]:
        return tuple(instance.id for instance in self._found.listed(self._ours))

    def _disks(self) -> list[str]:
        list_all = self._connection.disks.aggregated_list
        shown = self._connection.listed_by_zone(list_all, "disks", filter=self._ours)
        return sorted(f"{zone}/{disk.name}" for zone, disk in shown if not disk.users)

    def _inserts_under_way(self) -> set[str]:
        """REGION/OPERATION of those in the fleet's regions; they do not say whose they are."""
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
                except Refused as error:
                    if error.status != _WRITTEN_MEANWHILE or attempt == _WRITE_ATTEMPTS:
                        raise
                else:
                    return

    def _write_mark(self, zone: str, name: str, mark: str) -> None:
        """Read and write back all of the metadata: it is refused when somebody else wrote it in between."""
        clients = self._connection
        metadata = clients.call(clients.instances.get, zone=zone, instance=name).metadata
        items = [{"key": item.key, "value": item.value} for item in metadata.items]
        if any(item["key"] == DRAIN_TAG for item in items):
            return
        written = {"fingerprint": metadata.fingerprint, "items": [*items, {"key": DRAIN_TAG, "value": mark}]}
        clients.call(clients.instances.set_metadata_unary, zone=zone, instance=name, metadata_resource=written)


def _each(ids: Sequence[str], act: Callable[[str], None]) -> None:
    """Do it for all of them, some at a time; then raise the first refusal, if there was one."""

    def attempt(id: str) -> Refused | None:
        try:
            act(id)
        except Refused as error:
            return error
        return None

    with ThreadPoolExecutor(_AT_ONCE) as workers:
        refusals = [error for error in workers.map(attempt, ids) if error is not None]
    if refusals:
        raise refusals[0]


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise


def _line(kind: str, id: str) -> str:
    place, name = id.split("/")
    return f"{kind} {name} in {place}"
