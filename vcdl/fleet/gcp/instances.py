"""Find a fleet's machines on Compute Engine, and find out how they ended.

Compute Engine no longer lists a deleted machine. So this process remembers the machines that it saw, and reads how they
ended from the operations of their zone. It does not know of machines that ended before it started.
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
"""Compute Engine's state of a machine → ours. Any other state (STOPPING, SUSPENDING, …) means that the machine is
ending. A repair counts as stopped, because it loses the machine's work."""
_ENDINGS = {"compute.instances.preempted": Ending.PREEMPTED, "delete": Ending.OURS}
"""Operation on a machine → how the machine ended. A preempted machine may have both; then the first one decides."""
_REMEMBERED_S = 3600.0
"""Seconds for which a machine is returned after its end, so that commands show it for as long as on AWS."""


class GcpInstances:
    """Lists the machines that exist, and remembers those that ended recently."""

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
        """Id of a machine → the machine, and Compute Engine's own number for it, by which operations are found."""
        self._gone: dict[str, tuple[Instance, float]] = {}
        """Id of a deleted machine → the machine, and the Unix time at which this process noticed its end."""

    def list(self, wanted: str) -> tuple[Instance, ...]:
        """List the machines in all regions that a filter selects, remember them, and set `away`.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        machines, self.away = self._connection.list_by_zone("instances", wanted)
        shown = {(one := self._instance(zone, machine)).id: (one, machine.id) for zone, machine in machines}
        self._seen |= shown
        return tuple(instance for instance, _ in shown.values())

    def list_with_gone(self, wanted: str) -> tuple[Instance, ...]:
        """List the machines that a filter selects, and those that this process has seen and that ended within an hour.

        Unlike `list` this finds out how stopped and deleted machines ended.

        Raises:
            CloudRefusal: Compute Engine refuses the call, or cannot be reached.
        """
        shown = self.list(wanted)
        ids = {instance.id for instance in shown}
        now_s = self._clock()
        # Skip machines in unreachable zones: they are not listed, but most likely still live.
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
        # Do not ask for operations: they would show only our deletion, after the machine had powered itself off.
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
        # Use the time of the stop only for a stopped machine: one that runs again still has that of an earlier stop.
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
    """Convert an RFC 3339 time stamp to Unix time."""
    return datetime.fromisoformat(stamp).timestamp()
