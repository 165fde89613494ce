"""The state of the fake Compute Engine: machines, disks and operations, with shortages and preemptions on demand."""

import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from tests.fleet.gcp.fake_places import MACHINE_TYPES, REGIONS, described, is_offered, known_types

Json = dict[str, Any]
Query = dict[str, str]
Answer = TypeVar("Answer", bound=Callable[..., Json])

LINK = "https://www.googleapis.com/compute/v1/projects"


class Refuse(Exception):
    """An error as the answer: HTTP status, Compute Engine's reason, and its words."""

    def __init__(self, status: int, reason: str, words: str) -> None:
        super().__init__(words)
        self.status, self.reason, self.words = status, reason, words


def not_found(resource: str) -> Refuse:
    return Refuse(404, "notFound", f"The resource '{resource}' was not found")


ROUTES: list[tuple[str, str]] = []
"""The pattern of a request's method and path, and the name of FakeCompute's method that answers it."""


def route(method: str, path: str) -> Callable[[Answer], Answer]:
    """Let a method answer requests; each * of the path is one of its arguments."""

    def register(answer: Answer) -> Answer:
        ROUTES.append((f"{method} /compute/v1/projects/[^/]+/{path.replace('*', '([^/]+)')}", answer.__name__))
        return answer

    return register


@dataclass
class _Operation:
    json: Json
    at: str
    """Its zone or region."""
    began_s: float
    """By the cloud's clock, which stands still during the operation."""
    due_s: float
    """time.monotonic() at which it is done."""
    finish: Callable[["_Operation"], object]
    """Called when it is done; may write an error into the JSON."""


class FakeCompute:
    """Calls may come from several threads. `clock`: the Unix time of everything; it may be virtual.

    An operation takes `operation_s` of real time and none of the clock's, and takes effect at its end.
    """

    def __init__(self, project: str, clock: Callable[[], float] = time.time, operation_s: float = 0.01) -> None:
        self.project = project
        self.clock = clock
        self.operation_s = operation_s
        self.machines: dict[str, Json] = {}
        """By ZONE/NAME."""
        self.disks: dict[str, Json] = {}
        """Disks that a test added, by ZONE/NAME."""
        self.said = ""
        """The serial port of every machine."""
        self.left: dict[tuple[str, str], int] = {}
        """Remaining machines of a pool, by (zone, type); a pool that is not named is unlimited."""
        self.quota_vcpus: dict[str, int] = {}
        """vCPUs that may be in use, by region; a region that is not named has no limit."""
        self.tries_one_pool = False
        """Whether a bulk insert tries only the first pool that it may use."""
        self.says_why = True
        """Whether a failed single insert has an operation of its own."""
        self.page_size = 500
        """Resources in one page of a list."""
        self.unreachable_zones: set[str] = set()
        """Zones that an aggregated list cannot reach."""
        self.lock = threading.RLock()
        self._operations: dict[str, _Operation] = {}
        self._requests: dict[str, str] = {}
        self._numbers = itertools.count(4_000_000_000_000_000_001)

    # Operations of a test.

    def exhaust(self, zone: str, type: str, left: int = 0) -> None:
        """Limit a pool to so many more machines."""
        with self.lock:
            self.left[zone, type] = left

    def preempt(self, id: str) -> None:
        """Preempt a machine, which is gone at once (instanceTerminationAction DELETE)."""
        with self.lock:
            self.finish_due()
            preemption = self._begin(
                self._machine(id), "compute.instances.preempted", lambda _: self.machines.pop(id, None)
            )
            preemption.due_s = 0.0
            self.finish_due()

    def stop(self, id: str) -> None:
        """Let a machine power itself off: it stays, stopped, with its disk."""
        with self.lock:
            self._machine(id).update(status="TERMINATED", lastStopTimestamp=_stamp(self.clock()))

    def settle(self) -> None:
        """Finish all operations now."""
        with self.lock:
            for operation in self._operations.values():
                operation.due_s = 0.0
            self.finish_due()

    def ids(self) -> tuple[str, ...]:
        """ZONE/NAME of the existing machines, oldest first."""
        with self.lock:
            self.finish_due()
            return tuple(self.machines)

    def add_disk(self, zone: str, name: str, labels: dict[str, str], users: tuple[str, ...] = ()) -> None:
        """Add a disk. `users`: machines that it is attached to."""
        with self.lock:
            disk = {"id": self._number(), "name": name, "zone": self._url(zone), "labels": labels, "users": list(users)}
            self.disks[f"{zone}/{name}"] = disk

    # Routes, which FakeGce calls under the lock, once the operations whose time has come are finished.

    @route("POST", "regions/*/instances/bulkInsert")
    def bulk_insert(self, query: Query, body: Json, region: str) -> Json:
        """Insert machines of the allowed types in the allowed zones, within pools and quota."""
        request_id = query.get("requestId", "")
        if request_id in self._requests:
            return self._operations[self._requests[request_id]].json
        if not known_types(body):
            raise Refuse(400, "invalid", "Invalid value for field 'resource.machineTypes'. Unknown machine type.")
        target = {"name": region, "zone": region, "id": "0"}
        operation = self._begin(target, "bulkInsert", lambda operation: self._insert(region, body, operation))
        operation.json["operationGroupId"] = f"group-{self._number()}"
        if request_id:
            self._requests[request_id] = str(operation.json["name"])
        return operation.json

    @route("GET", "aggregated/instances")
    def list_instances(self, query: Query, body: Json) -> Json:
        return self._aggregated("instances", self.machines, query)

    @route("GET", "aggregated/disks")
    def list_disks(self, query: Query, body: Json) -> Json:
        return self._aggregated("disks", self.disks, query)

    @route("GET", "zones/*/instances/*")
    def get_instance(self, query: Query, body: Json, zone: str, name: str) -> Json:
        return self._machine(f"{zone}/{name}")

    @route("DELETE", "zones/*/instances/*")
    def delete_instance(self, query: Query, body: Json, zone: str, name: str) -> Json:
        machine = self._machine(id := f"{zone}/{name}")
        machine["status"] = "STOPPING"
        return self._begin(machine, "delete", lambda _: self.machines.pop(id, None)).json

    @route("DELETE", "zones/*/disks/*")
    def delete_disk(self, query: Query, body: Json, zone: str, name: str) -> Json:
        if f"{zone}/{name}" not in self.disks:
            raise not_found(f"{zone}/{name}")
        return self._begin(self.disks.pop(f"{zone}/{name}"), "delete").json

    @route("POST", "zones/*/instances/*/setMetadata")
    def set_metadata(self, query: Query, body: Json, zone: str, name: str) -> Json:
        """Replace a machine's metadata; refuse an outdated fingerprint."""
        machine = self._machine(f"{zone}/{name}")
        if body.get("fingerprint") != machine["metadata"]["fingerprint"]:
            raise Refuse(412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint.")
        machine["metadata"] = {"items": body.get("items", []), "fingerprint": self._number()}
        return self._begin(machine, "setMetadata").json

    @route("GET", "zones/*/instances/*/serialPort")
    def serial_port(self, query: Query, body: Json, zone: str, name: str) -> Json:
        self._machine(f"{zone}/{name}")
        return {"contents": self.said}

    @route("POST", "regions/[^/]+/operations/*/wait")
    def wait(self, query: Query, body: Json, name: str) -> Json:
        """The operation as it is now: a real one answers when it is done, or earlier, as `wait` is best effort."""
        if name not in self._operations:
            raise not_found(f"operations/{name}")
        return self._operations[name].json

    @route("GET", "(?:regions|zones)/*/operations")
    def list_operations(self, query: Query, body: Json, place: str) -> Json:
        wanted = query.get("filter", "")
        found = [o.json for o in self._operations.values() if o.at == place and _passes(o.json, wanted)]
        return self._page(found, query)

    @route("GET", "regions/*")
    def get_region(self, query: Query, body: Json, region: str) -> Json:
        if region not in REGIONS:
            raise not_found(f"projects/{self.project}/regions/{region}")
        return {"name": region, "zones": [self._url(zone) for zone in REGIONS[region]]}

    @route("GET", "zones/*/machineTypes")
    def list_machine_types(self, query: Query, body: Json, zone: str) -> Json:
        return self._page([described(name) for name in MACHINE_TYPES if is_offered(name, zone)], query)

    @route("GET", "zones/*/machineTypes/*")
    def get_machine_type(self, query: Query, body: Json, zone: str, name: str) -> Json:
        if name not in MACHINE_TYPES or not is_offered(name, zone):
            raise not_found(f"zones/{zone}/machineTypes/{name}")
        return described(name)

    def finish_due(self) -> None:
        """Finish the operations whose time has come."""
        for operation in list(self._operations.values()):
            if operation.json["status"] != "DONE" and operation.due_s <= time.monotonic():
                operation.finish(operation)
                operation.json.update(status="DONE", endTime=operation.json["insertTime"])

    def _page(self, all_of: list[Json], query: Query) -> Json:
        begin = int(query.get("pageToken", "0"))
        end = begin + self.page_size
        page: Json = {"items": all_of[begin:end]}
        return page | {"nextPageToken": str(end)} if end < len(all_of) else page

    def _aggregated(self, kind: str, all_of: dict[str, Json], query: Query) -> Json:
        """A page of resources, cut across zones; zones without any have a warning, as in the real one."""
        zones = [zone for zones in REGIONS.values() for zone in zones]
        shown = [(id.split("/")[0], dict(it)) for id, it in all_of.items() if _passes(it, query.get("filter", ""))]
        shown.sort(key=lambda row: zones.index(row[0]))
        page = self._page([{"zone": zone, "it": it} for zone, it in shown], query)
        nothing = {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}
        items: Json = {f"zones/{zone}": {"warning": nothing} for zone in zones}
        for row in page["items"]:
            items[f"zones/{row['zone']}"].setdefault(kind, []).append(row["it"])
        for zone in self.unreachable_zones:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"zone {zone} is unreachable"}}
        return page | {"items": items}

    def _insert(self, region: str, body: Json, operation: _Operation) -> None:
        """The end of a bulk insert: make what can be made, and a failed operation for the rest."""
        denied = body.get("locationPolicy", {}).get("locations", {})
        zones = [z for z in REGIONS[region] if denied.get(f"zones/{z}", {}).get("preference") != "DENY"]
        pools = [(zone, type) for type in known_types(body) for zone in zones if is_offered(type, zone)]
        pools = pools[:1] if self.tries_one_pool else pools
        count = int(body["count"])
        least = int(body.get("minCount") or count)
        granted: list[tuple[str, str]] = []
        refused: tuple[str, str] | None = None
        while len(granted) < count and refused is None:
            pool = next((p for p in pools if self.left.get(p, count + 1) > granted.count(p)), None)
            if pool is None:
                refused = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "does not have enough resources available"
            elif self._is_over_quota(region, [*granted, pool]):
                refused = (
                    "QUOTA_EXCEEDED",
                    f"Quota 'CPUS' exceeded. Limit: {self.quota_vcpus[region]}.0 in region {region}.",
                )
            else:
                granted.append(pool)
        if len(granted) < least:
            words = f"Requested minimum count of {least} VMs could not be created."
            operation.json["error"] = {"errors": [{"code": "VM_MIN_COUNT_NOT_REACHED", "message": words}]}
            operation.json["httpErrorStatusCode"] = 503
            granted = []
        for number, pool in enumerate(granted):
            name = f"{body['namePattern'].rstrip('#')}{number + 1:04d}"
            self._make(pool, name, body["instanceProperties"], operation.began_s)
        if refused is not None and self.says_why:
            self._report(pools, *refused, str(operation.json["operationGroupId"]))

    def _make(self, pool: tuple[str, str], name: str, properties: Json, now_s: float) -> None:
        zone, type = pool
        kind = MACHINE_TYPES[type]
        own_gpus = [{"acceleratorType": kind.gpu, "acceleratorCount": kind.gpus}] if kind.gpu else []
        if pool in self.left:
            self.left[pool] -= 1
        self.machines[f"{zone}/{name}"] = {
            **properties, "id": self._number(), "name": name, "zone": self._url(zone),
            "machineType": f"{self._url(zone)}/machineTypes/{type}", "status": "RUNNING",
            "creationTimestamp": _stamp(now_s), "guestAccelerators": properties.get("guestAccelerators", own_gpus),
            "metadata": {**properties.get("metadata", {}), "fingerprint": self._number()},
            "disks": [{**properties["disks"][0], "source": f"{self._url(zone)}/disks/{name}"}],
        }  # fmt: skip

    def _report(self, pools: list[tuple[str, str]], code: str, words: str, group: str) -> None:
        for zone, type in pools:
            failed = self._begin({"name": "vm", "zone": zone, "id": "0"}, "insert").json
            detail = {"errorInfo": {"reason": "resource_availability", "metadatas": {"vmType": type, "zone": zone}}}
            failed["operationGroupId"] = group
            failed["error"] = {"errors": [{"code": code, "message": f"{zone}: {words}", "errorDetails": [detail]}]}

    def _is_over_quota(self, region: str, granted: list[tuple[str, str]]) -> bool:
        in_use = [m["machineType"].rsplit("/", 1)[-1] for id, m in self.machines.items() if id.startswith(f"{region}-")]
        vcpus = sum(MACHINE_TYPES[type].vcpus for type in (*in_use, *(type for _, type in granted)))
        return vcpus > self.quota_vcpus.get(region, vcpus)

    def _machine(self, id: str) -> Json:
        if id not in self.machines:
            raise not_found(f"instances/{id}")
        return self.machines[id]

    def _begin(self, target: Json, type: str, finish: Callable[[_Operation], object] = lambda _: None) -> _Operation:
        now_s = self.clock()
        number = self._number()
        place = str(target["zone"]).rsplit("/", 1)[-1]
        json = {
            "id": number, "name": f"operation-{number}", "operationType": type, "status": "RUNNING",
            "insertTime": _stamp(now_s), "targetId": target["id"],
            "targetLink": f"{LINK}/{self.project}/zones/{place}/instances/{target['name']}",
            ("region" if place in REGIONS else "zone"): f"{LINK}/{self.project}/{place}",
        }  # fmt: skip
        operation = _Operation(json, place, now_s, time.monotonic() + self.operation_s, finish)
        self._operations[json["name"]] = operation
        return operation

    def _number(self) -> str:
        return str(next(self._numbers))

    def _url(self, zone: str) -> str:
        return f"{LINK}/{self.project}/zones/{zone}"


def _stamp(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="microseconds")


def _passes(it: Json, wanted: str) -> bool:
    """Whether a resource satisfies each `(key = "value")` or `(key != "value")` of a filter, or of a part before OR."""
    if " OR " in wanted:
        return any(_passes(it, part) for part in wanted.split(" OR "))
    for key, sign, value in re.findall(r'([\w.-]+)\s*(!?=)\s*"?([^\s")]*)', wanted):
        outer, _, inner = key.partition(".")
        found = it.get(outer, {}).get(inner) if inner else it.get(outer)
        if (str(found) == value) != (sign == "="):
            return False
    return True
