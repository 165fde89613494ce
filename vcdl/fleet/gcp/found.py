"""The fleet's machines as Compute Engine shows them, and how those ended that it no longer shows.

A machine that was preempted or deleted is simply not listed any more. While this process lives it remembers those it saw, and asks
the zone's operations, which are kept for days, how each ended; after a restart a machine that is missing has no ending to tell,
and the ledger ends it as unknown.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.machines import MachineName, Machines
from vcdl.fleet.instance import Ending, Instance, Pool, State
from vcdl.fleet.provider import DRAIN_TAG

_STATES = {
    "PROVISIONING": State.PENDING,
    "STAGING": State.PENDING,
    "RUNNING": State.RUNNING,
    "TERMINATED": State.STOPPED,
    "STOPPED": State.STOPPED,
    "SUSPENDED": State.STOPPED,
    "REPAIRING": State.STOPPED,
}
"""All others (STOPPING, PENDING_STOP, SUSPENDING, …) are on their way out. One under repair has lost its work, like one switched off."""
_ENDINGS = {"compute.instances.preempted": Ending.PREEMPTED, "delete": Ending.OURS}
"""By operation; a preempted machine may show both, so the first of these counts."""
_REMEMBERED_S = 3600.0
"""How long a machine that is gone is still found: as long as AWS shows it."""


@dataclass(frozen=True)
class _Seen:
    instance: Instance
    number: int
    """Compute Engine's own id, which operations name it by."""


@dataclass(frozen=True)
class _Gone:
    instance: Instance
    noticed_s: float


class Found:
    """What there is, and what was there lately. `now` is Unix time."""

    def __init__(self, connection: Connection, machines: Machines, now: Callable[[], float] = time.time) -> None:
        self._connection = connection
        self._machines = machines
        self._now = now
        self._seen: dict[str, _Seen] = {}
        self._gone: dict[str, _Gone] = {}

    def listed(self, wanted: str) -> tuple[Instance, ...]:
        """The machines that a filter such as `labels.vcdl-fleet = "night"` names, in all regions. Raises Refused."""
        list_all = self._connection.instances.aggregated_list
        shown = self._connection.listed_by_zone(list_all, "instances", filter=wanted)
        for zone, machine in shown:
            instance = self._instance(zone, machine)
            self._seen[instance.id] = _Seen(instance, machine.id)
        return tuple(self._seen[f"{zone}/{machine.name}"].instance for zone, machine in shown)

    def with_the_gone(self, wanted: str) -> tuple[Instance, ...]:
        """Those, with the endings of the ones on their way out, and those that this process saw and that are gone. Raises Refused."""
        shown = self.listed(wanted)
        ids = {instance.id for instance in shown}
        now_s = self._now()
        for id in [id for id in self._seen if id not in ids]:
            self._gone[id] = _Gone(self._ended(id, State.GONE), now_s)
            del self._seen[id]
        self._gone = {id: gone for id, gone in self._gone.items() if now_s - gone.noticed_s < _REMEMBERED_S}
        return (
            *(one if one.is_live else self._ended(one.id, one.state) for one in shown),
            *(gone.instance for gone in self._gone.values()),
        )

    def _ended(self, id: str, state: State) -> Instance:
        seen = self._seen[id]
        zone = seen.instance.pool.zone
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
        type = self._machines.type(zone, name)
        if type is None:
            raise FleetError(
                f"Compute Engine does not say what {name} in {zone} has, of which {machine.name} is one; delete it"
            )
        state = _STATES.get(machine.status, State.STOPPING)
        is_live = state in (State.PENDING, State.RUNNING)
        drain = next((item.value for item in machine.metadata.items if item.key == DRAIN_TAG), "")
        return Instance(
            id=f"{zone}/{machine.name}",
            pool=Pool("gcp", name, zone.rsplit("-", 1)[0], zone),
            vcpus=type.vcpus,
            gpus=type.gpus,
            state=state,
            launched_s=unix_time(machine.creation_timestamp),
            ended_s=unix_time(machine.last_stop_timestamp)
            if state == State.STOPPED and machine.last_stop_timestamp
            else None,
            ending=None if is_live else Ending.UNKNOWN,
            draining_s=float(drain) if drain.isdecimal() else None,
        )


def unix_time(stamp: str) -> float:
    """Of an RFC 3339 time, as Compute Engine writes it."""
    return datetime.fromisoformat(stamp).timestamp()
