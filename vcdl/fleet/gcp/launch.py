"""A launch by bulk inserts: one group of pools after the other, until there are enough machines."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vcdl.fleet.gcp.bulk_insert import MAX_MACHINES, Group, body, groups, metadata_items, request_id
from vcdl.fleet.gcp.catalogue import MachineCatalogue
from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.instances import GcpInstances
from vcdl.fleet.gcp.refusal import kind_of
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import LAUNCH_TAG, LaunchResult, ProblemKind, ProviderProblem, missing_units
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings

_LIMIT_S = 300.0
"""A bulk insert that takes longer is no longer waited for: a later pass finds its machines."""


class BulkLaunch:
    """One launch with its token; see Provider.launch."""

    def __init__(
        self,
        connection: Connection,
        catalogue: MachineCatalogue,
        instances: GcpInstances,
        settings: FleetSettings,
        token: str,
        until_s: float | None,
    ) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._instances = instances
        self._settings = settings
        self._token = token
        self._until_s = until_s

    def run(
        self, pools: Sequence[Pool], types: Mapping[Pool, InstanceType], units: int, user_data: str
    ) -> LaunchResult:
        """Insert machines until those with this launch's token count for `units`; refusals are among the problems."""
        unit = self._settings.capacity.unit
        launched: tuple[Instance, ...] = ()
        problems: dict[tuple[Pool, ProblemKind], ProviderProblem] = {}
        away: set[str] = set()
        """Regions that refuse as a whole."""
        for group in groups(pools, types, unit):
            missing = missing_units(units, launched, unit)
            if missing <= 0:
                break
            if group.region in away:
                continue
            count = min(math.ceil(missing / group.units_each), MAX_MACHINES)
            try:
                operation = self._insert(group, count, user_data)
                before, launched = launched, self._launched()
                made = len(launched) - len(before)
                met = self._shortages(group, operation, f"{made} of {count} machines") if made < count else ()
            except CloudRefusal as refused:
                met = _problems(group, refused.kind, str(refused))
            problems |= {(problem.pool, problem.kind): problem for problem in met}
            if any(not problem.kind.may_spare_other_pools for problem in met):
                away |= {group.region}
        return LaunchResult(launched, tuple(problems.values()))

    def _insert(self, group: Group, count: int, user_data: str) -> Any:
        """Make a bulk insert and wait for it; returns its operation. Raises CloudRefusal."""
        denied = [zone for zone in self._catalogue.zones(group.region) if zone not in group.zones]
        resource = body(
            group=group,
            count=count,
            token=self._token,
            items=metadata_items(user_data, self._until_s),
            settings=self._settings,
            denied=denied,
        )
        insert = partial(
            self._connection.call,
            self._connection.region_instances.bulk_insert_unary,
            region=group.region,
            request_id=request_id(group, count, self._token),
            bulk_insert_instance_resource_resource=resource,
        )
        try:
            operation = insert()
        except CloudRefusal as refused:
            if refused.code or refused.kind is not ProblemKind.UNAVAILABLE:
                raise
            operation = insert()  # the answer was lost; the request id keeps the insert from being done twice
        wait = self._connection.region_operations.wait
        return self._connection.wait(wait, operation.name, _LIMIT_S, region=group.region)

    def _launched(self) -> tuple[Instance, ...]:
        return self._instances.list(f'labels.{LAUNCH_TAG} = "{self._token}"')

    def _shortages(self, group: Group, operation: Any, made: str) -> tuple[ProviderProblem, ...]:
        """The reasons for too few machines, from the single inserts, which are more precise than the bulk insert."""
        problems: list[ProviderProblem] = []
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


def _problems(
    group: Group, kind: ProblemKind, words: str, blamed: Sequence[Pool] | None = None
) -> tuple[ProviderProblem, ...]:
    return tuple(ProviderProblem(pool, kind, words) for pool in (group.pools if blamed is None else blamed))
