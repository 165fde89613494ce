"""A launch: group by group of its pools, until there are enough machines or nothing is left to ask."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vcdl.fleet.gcp.bulk_insert import LAUNCH_LABEL, MOST_MACHINES, Group, body, groups, request_id
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.found import Found
from vcdl.fleet.gcp.machines import Machines
from vcdl.fleet.gcp.refusal import Refused, kind_of
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import Launched, Problem, ProblemKind
from vcdl.fleet.settings import FleetSettings

_LIMIT_S = 300.0
"""A bulk insert that takes longer goes on without us: its machines are found later."""
_OF_THE_WHOLE_LAUNCH = (ProblemKind.THROTTLED, ProblemKind.NOT_AUTHORISED, ProblemKind.UNAVAILABLE)
"""Refusals that the next group would meet as well."""


class Launch:
    """One launch with its token; see Provider.launch."""

    def __init__(
        self, connection: Connection, machines: Machines, found: Found, settings: FleetSettings, token: str
    ) -> None:
        self._connection = connection
        self._machines = machines
        self._found = found
        self._settings = settings
        self._token = token

    def run(self, pools: Sequence[Pool], types: Mapping[Pool, InstanceType], units: int, user_data: str) -> Launched:
        """Ask for machines until those that carry this launch's token count for `units`; no refusal comes out as an exception."""
        unit = self._settings.capacity.unit
        launched: tuple[Instance, ...] = ()
        problems: dict[tuple[Pool | None, ProblemKind], Problem] = {}
        for group in groups(pools, types, unit):
            missing = units - sum(instance.units(unit) for instance in launched)
            if missing <= 0:
                break
            count = min(math.ceil(missing / group.units_each), MOST_MACHINES)
            try:
                operation = self._insert(group, count, user_data)
                before, launched = launched, self._launched()
                made = len(launched) - len(before)
                met = self._shortages(group, operation, f"{made} of {count} machines") if made < count else ()
            except Refused as error:
                met = _problems(group, error.kind, error.words)
            problems |= {(problem.pool, problem.kind): problem for problem in met}
            if any(problem.pool is None for problem in met):
                break
        return Launched(launched, tuple(problems.values()))

    def _insert(self, group: Group, count: int, user_data: str) -> Any:
        """The bulk insert's operation once it is done. Raises Refused."""
        denied = [zone for zone in self._machines.zones(group.region) if zone not in group.zones]
        resource = body(group, count, self._token, user_data, self._settings, denied)
        insert = partial(
            self._connection.call,
            self._connection.region_instances.bulk_insert_unary,
            region=group.region,
            request_id=request_id(group, count, self._token),
            bulk_insert_instance_resource_resource=resource,
        )
        try:
            operation = insert()
        except Refused as error:
            if error.status or error.kind != ProblemKind.UNAVAILABLE:
                raise
            operation = insert()  # the answer was lost: with its request id the same insert is not done twice
        return self._connection.wait_in_region(group.region, operation.name, _LIMIT_S)

    def _launched(self) -> tuple[Instance, ...]:
        return self._found.listed(f'labels.{LAUNCH_LABEL} = "{self._token}"')

    def _shortages(self, group: Group, operation: Any, made: str) -> tuple[Problem, ...]:
        """Why there are too few: the single inserts of the bulk insert say it better than the bulk insert does."""
        problems: list[Problem] = []
        list_all = self._connection.zone_operations.list
        wanted = f'operationGroupId = "{operation.operation_group_id}"'
        for zone in group.zones:
            for insert in self._connection.listed(list_all, zone=zone, filter=wanted):
                for error in insert.error.errors:
                    type = next((it.error_info.metadatas.get("vmType", "") for it in error.error_details), "")
                    blamed = [p for p in group.pools if p.zone == zone and (not type or p.type.split("+")[0] == type)]
                    kind = kind_of(error.code, insert.http_error_status_code)
                    problems += _problems(group, kind, f"{error.code}: {error.message}", blamed)
        if not problems:
            for error in operation.error.errors:
                kind = kind_of(error.code, operation.http_error_status_code)
                problems += _problems(group, kind, f"{error.code}: {error.message}")
        return tuple(problems) or _problems(group, ProblemKind.NO_CAPACITY, f"it made {made}, and does not say why")


def _problems(group: Group, kind: ProblemKind, words: str, blamed: Sequence[Pool] | None = None) -> tuple[Problem, ...]:
    if kind in _OF_THE_WHOLE_LAUNCH:
        return (Problem(None, kind, words),)
    return tuple(Problem(pool, kind, words) for pool in (group.pools if blamed is None else blamed))
