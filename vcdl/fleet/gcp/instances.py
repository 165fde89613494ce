"""Find a fleet's machines on Compute Engine, and find out how they ended.

A machine that has ended is no longer listed. This process remembers the machines that it saw, and reads their endings
from the operations of their zone. After a restart those endings are unknown.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.gcp.catalogue import MachineCatalogue, type_of
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.provider import KEEPER_TAG, LEASE_TAG, lease_of

_STATES = {
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "TERMINATED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
    "REPAIRING": InstanceState.STOPPED,
}
"""States of machines. Any other state (STOPPING, SUSPENDING, …) means that the machine is ending. A repair counts as
stopped, because it loses the machine's work."""
_ENDINGS = {"compute.instances.preempted": Ending.PREEMPTED, "delete": Ending.OURS}
"""Endings by operation. A preempted machine may have both operations; then the first one decides."""
_REMEMBERED_S = 3600.0
"""Seconds for which a machine is still found after its end: so that this is like on AWS."""


class GcpInstances:
    """The machines that exist, and those that ended recently."""

    def __init__(self, connection: Connection, catalogue: MachineCatalogue, clock: Callable[[], float]) -> None:
        """Prepare the list of machines.

        Args:
            connection: Compute Engine.
            catalogue: Its types.
            clock: Returns Unix time.
        """
        self._connection = connection
        self._catalogue = catalogue
        self._clock = clock
        self.away: dict[str, str] = {}
        """Zones that the last list did not reach, each with the reason."""
        self._seen: dict[str, tuple[Instance, int]] = {}
        """Machines by id, with Compute Engine's own id, which its operations name."""
        self._gone: dict[str, tuple[Instance, float]] = {}
        """Gone machines by id, with the Unix time at which this process noticed that."""

    def list(self, wanted: str) -> tuple[Instance, ...]:
        """Return the machines in all regions that a filter selects.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        machines, self.away = self._connection.list_by_zone("instances", wanted)
        shown = {(one := self._instance(zone, machine)).id: (one, machine.id) for zone, machine in machines}
        self._seen |= shown
        return tuple(instance for instance, _ in shown.values())

    def list_with_gone(self, wanted: str) -> tuple[Instance, ...]:
        """Return the machines of `list` with their endings, and ended ones that this process has seen.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        shown = self.list(wanted)
        ids = {instance.id for instance in shown}
        now_s = self._clock()
        # A machine in an unreachable zone is not gone; it is only not listed.
        for id in [id for id in self._seen if id not in ids and id.split("/")[0] not in self.away]:
            self._gone[id] = self._with_ending(id, InstanceState.GONE), now_s
            del self._seen[id]
        self._gone = {id: one for id, one in self._gone.items() if now_s - one[1] < _REMEMBERED_S}
        return (
            *(one if one.is_live else self._with_ending(one.id, one.state) for one in shown),
            *(instance for instance, _ in self._gone.values()),
        )

    def _with_ending(self, id: str, state: InstanceState) -> Instance:
        seen, number = self._seen[id]
        # Its own time stamps show this; the operations would only show a deletion by us.
        if seen.ending is Ending.GAVE_UP:
            return replace(seen, state=state)
        operations = self._connection.list_all(
            "zone_operations.list", zone=seen.pool.zone, filter=f"targetId = {number}"
        )
        for type, ending in _ENDINGS.items():
            for operation in operations:
                if operation.operation_type == type:
                    ended_s = unix_time(operation.end_time or operation.insert_time)
                    return replace(seen, state=state, ending=ending, ended_s=ended_s)
        return replace(seen, state=state, ending=Ending.UNKNOWN)

    def _instance(self, zone: str, machine: Any) -> Instance:
        name = type_of(machine)
        type = self._catalogue.type(zone, name)
        if type is None:
            raise FleetError(
                f"Compute Engine does not describe the type {name} of {machine.name} in {zone}; delete that machine"
            )
        state = _STATES.get(machine.status, InstanceState.STOPPING)
        # Compute Engine keeps the time of an earlier stop for a machine that runs again.
        has_stop = state is InstanceState.STOPPED and machine.last_stop_timestamp
        marks = {item.key: item.value for item in machine.metadata.items}
        until_s = lease_of(marks.get(LEASE_TAG))
        ended_s = unix_time(machine.last_stop_timestamp) if has_stop else None
        on_demand = machine.scheduling.provisioning_model == "STANDARD"
        gave_up = ended_s is not None and until_s is not None and ended_s < until_s
        return Instance(
            id=f"{zone}/{machine.name}",
            pool=Pool("gcp", name, zone.rsplit("-", 1)[0], zone, on_demand=on_demand),
            vcpus=type.vcpus,
            gpus=type.gpus,
            state=state,
            launched_s=unix_time(machine.creation_timestamp),
            ended_s=ended_s,
            ending=None if state.is_live else Ending.GAVE_UP if gave_up else Ending.UNKNOWN,
            until_s=until_s,
            keeper=marks.get(KEEPER_TAG, ""),
        )


def unix_time(stamp: str) -> float:
    """Return the Unix time of an RFC 3339 time stamp."""
    return datetime.fromisoformat(stamp).timestamp()
