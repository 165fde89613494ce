"""A fleet's machines as Compute Engine shows them, and how those ended that it no longer shows.

A preempted or deleted machine is simply no longer listed. This process remembers the machines that it has seen, and
reads from their zone's operations, which are kept for days, how each ended. After a restart an ending is unknown.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.gcp.catalogue import MachineCatalogue, MachineName
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.provider import LEASE_TAG, lease_of

_STATES = {
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "TERMINATED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
    "REPAIRING": InstanceState.STOPPED,
}
"""Any other state (STOPPING, PENDING_STOP, SUSPENDING, …) is on its way out. Repairing loses a machine's work, too."""
_ENDINGS = {"compute.instances.preempted": Ending.PREEMPTED, "delete": Ending.OURS}
"""By operation; a preempted machine may have both, and then the first counts."""
_REMEMBERED_S = 3600.0
"""How long a machine is still found after its end: as long as on AWS."""


@dataclass(frozen=True)
class _Seen:
    instance: Instance
    number: int
    """Compute Engine's own id, which its operations name."""


@dataclass(frozen=True)
class _Gone:
    instance: Instance
    noticed_s: float


class GcpInstances:
    """The machines that there are and those that ended recently."""

    def __init__(
        self, connection: Connection, catalogue: MachineCatalogue, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: Unix time."""
        self._connection = connection
        self._catalogue = catalogue
        self._clock = clock
        self.away: dict[str, str] = {}
        """The zones that the last list did not reach, each with the reason."""
        self._seen: dict[str, _Seen] = {}
        self._gone: dict[str, _Gone] = {}

    def list(self, wanted: str) -> tuple[Instance, ...]:
        """The machines in all regions that a filter (`labels.vcdl-fleet = "night"`) selects. Raises CloudRefusal."""
        list_all = self._connection.instances.aggregated_list
        shown, self.away = self._connection.listed_by_zone(list_all, "instances", filter=wanted)
        for zone, machine in shown:
            instance = self._instance(zone, machine)
            self._seen[instance.id] = _Seen(instance, machine.id)
        return tuple(self._seen[f"{zone}/{machine.name}"].instance for zone, machine in shown)

    def list_with_gone(self, wanted: str) -> tuple[Instance, ...]:
        """As `list`, with endings, and with the gone machines that this process has seen. Raises CloudRefusal."""
        shown = self.list(wanted)
        ids = {instance.id for instance in shown}
        now_s = self._clock()
        for id in [id for id in self._seen if id not in ids and id.split("/")[0] not in self.away]:
            self._gone[id] = _Gone(self._ended(id, InstanceState.GONE), now_s)
            del self._seen[id]
        self._gone = {id: gone for id, gone in self._gone.items() if now_s - gone.noticed_s < _REMEMBERED_S}
        return (
            *(one if one.is_live else self._ended(one.id, one.state) for one in shown),
            *(gone.instance for gone in self._gone.values()),
        )

    def _ended(self, id: str, state: InstanceState) -> Instance:
        seen = self._seen[id]
        zone = seen.instance.pool.zone
        if seen.instance.ending is Ending.GAVE_UP:
            return replace(seen.instance, state=state)
        ended = replace(seen.instance, state=state, ending=Ending.UNKNOWN)
        list_all = self._connection.zone_operations.list
        operations = self._connection.listed(list_all, zone=zone, filter=f"targetId = {seen.number}")
        for type, ending in _ENDINGS.items():
            for operation in operations:
                if operation.operation_type == type:
                    return replace(ended, ending=ending, ended_s=unix_time(operation.end_time or operation.insert_time))
        return ended

    def _instance(self, zone: str, machine: Any) -> Instance:
        name = str(MachineName.of(machine))
        type = self._catalogue.type(zone, name)
        if type is None:
            raise FleetError(
                f"Compute Engine does not describe the type {name} of {machine.name} in {zone}; delete that machine"
            )
        state = _STATES.get(machine.status, InstanceState.STOPPING)
        has_stop = state is InstanceState.STOPPED and machine.last_stop_timestamp
        until_s = lease_of(next((item.value for item in machine.metadata.items if item.key == LEASE_TAG), None))
        ended_s = unix_time(machine.last_stop_timestamp) if has_stop else None
        gave_up = ended_s is not None and until_s is not None and ended_s < until_s
        return Instance(
            id=f"{zone}/{machine.name}",
            pool=Pool(
                "gcp", name, zone.rsplit("-", 1)[0], zone, on_demand=machine.scheduling.provisioning_model == "STANDARD"
            ),
            vcpus=type.vcpus,
            gpus=type.gpus,
            state=state,
            launched_s=unix_time(machine.creation_timestamp),
            ended_s=ended_s,
            ending=None if state.is_live else Ending.GAVE_UP if gave_up else Ending.UNKNOWN,
            until_s=until_s,
        )


def unix_time(stamp: str) -> float:
    """The Unix time of Compute Engine's RFC 3339 format."""
    return datetime.fromisoformat(stamp).timestamp()
