"""A local HTTP server with the routes of Compute Engine that a fleet uses, for the real client library.

with FakeGce(clock=lambda: now_s) as gce:
    monkeypatch.setenv(ENDPOINT_VARIABLE, gce.url)
    …
    gce.compute.preempt("us-central1-a/vcdl-…")
"""

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fleet.gcp.fake_compute import FakeCompute, Json, Refuse
from tests.fleet.gcp.fake_places import MACHINE_TYPES, REGIONS, MachineType, is_offered

PROJECT = "vcdl-test"


class FakeGce:
    """The server, with faults on demand. `calls`: the names of the requested routes in order."""

    def __init__(
        self, project: str = PROJECT, clock: Callable[[], float] = time.time, operation_s: float = 0.01
    ) -> None:
        self.compute = FakeCompute(project, clock, operation_s)
        self.calls: list[str] = []
        self._faults: dict[str, list[Refuse | None]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"gce": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fail_next(self, route: str, status: int, reason: str, words: str = "no", times: int = 1) -> None:
        """Refuse the next calls of a route, which has the name of the function below."""
        self._faults.setdefault(route, []).extend([Refuse(status, reason, words)] * times)

    def lose_answer(self, route: str) -> None:
        """Perform the next call of a route, and cut the connection instead of answering."""
        self._faults.setdefault(route, []).append(None)

    def __enter__(self) -> "FakeGce":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> Json | None:
        """The answer to a request; None: no answer. Raises Refuse."""
        for pattern, route in _ROUTES:
            if found := re.fullmatch(pattern, f"{method} {path}"):
                self.calls.append(route.__name__)
                fault = self._faults[route.__name__].pop(0) if self._faults.get(route.__name__) else route
                if isinstance(fault, Refuse):
                    raise fault
                answer = route(self.compute, query, body, *found.groups())
                return None if fault is None else answer
        raise Refuse(404, "notFound", f"the fake has no route {method} {path}")


def bulk_insert(compute: FakeCompute, query: dict[str, str], body: Json, region: str) -> Json:
    return compute.bulk_insert(region, body, query.get("requestId", ""))


def list_instances(compute: FakeCompute, query: dict[str, str], body: Json) -> Json:
    return _aggregated(compute, "instances", query)


def list_disks(compute: FakeCompute, query: dict[str, str], body: Json) -> Json:
    return _aggregated(compute, "disks", query)


def get_instance(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    return compute.get(f"{zone}/{name}")


def delete_instance(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    return compute.delete(f"{zone}/{name}")


def delete_disk(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    return compute.delete_disk(f"{zone}/{name}")


def set_metadata(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    return compute.set_metadata(f"{zone}/{name}", body)


def wait(compute: FakeCompute, query: dict[str, str], body: Json, place: str, name: str) -> Json:
    """Answer when the operation is done, or a little earlier, as `wait` is best effort."""
    deadline_s = time.monotonic() + 0.5
    while (operation := compute.operation(name))["status"] != "DONE" and time.monotonic() < deadline_s:
        time.sleep(0.002)
    return operation


def list_operations(compute: FakeCompute, query: dict[str, str], body: Json, place: str) -> Json:
    return _page(compute, compute.operations(place, query.get("filter", "")), query)


def insert_image(compute: FakeCompute, query: dict[str, str], body: Json) -> Json:
    if query.get("forceCreate") != "true":
        raise Refuse(400, "resourceInUseByAnotherResource", "The disk is in use.")
    return compute.insert_image(body)


def list_images(compute: FakeCompute, query: dict[str, str], body: Json) -> Json:
    return _page(compute, compute.list_images(query.get("filter", "")), query)


def delete_image(compute: FakeCompute, query: dict[str, str], body: Json, name: str) -> Json:
    return compute.delete_image(name)


def serial_port(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    compute.get(f"{zone}/{name}")
    return {"contents": compute.said}


def wait_global(compute: FakeCompute, query: dict[str, str], body: Json, name: str) -> Json:
    return wait(compute, query, body, "global", name)


def get_region(compute: FakeCompute, query: dict[str, str], body: Json, region: str) -> Json:
    if region not in REGIONS:
        raise Refuse(404, "notFound", f"The resource 'projects/{compute.project}/regions/{region}' was not found")
    return {
        "name": region,
        "zones": [f"https://www.googleapis.com/compute/v1/zones/{zone}" for zone in REGIONS[region]],
    }


def list_machine_types(compute: FakeCompute, query: dict[str, str], body: Json, zone: str) -> Json:
    offered = {name: kind for name, kind in MACHINE_TYPES.items() if is_offered(name, zone)}
    return _page(compute, [_machine_type(name, kind) for name, kind in offered.items()], query)


def get_machine_type(compute: FakeCompute, query: dict[str, str], body: Json, zone: str, name: str) -> Json:
    if name not in MACHINE_TYPES or not is_offered(name, zone):
        raise Refuse(404, "notFound", f"The resource 'zones/{zone}/machineTypes/{name}' was not found")
    return _machine_type(name, MACHINE_TYPES[name])


def _machine_type(name: str, kind: MachineType) -> Json:
    described: Json = {
        "name": name,
        "guestCpus": kind.vcpus,
        "memoryMb": kind.memory_mb,
        "isSharedCpu": kind.shared_cpu,
        "architecture": kind.architecture,
    }
    if kind.gpus:
        described["accelerators"] = [{"guestAcceleratorType": kind.gpu, "guestAcceleratorCount": kind.gpus}]
    return described


def _page(compute: FakeCompute, all_of: list[Json], query: dict[str, str]) -> Json:
    begin = int(query.get("pageToken", "0"))
    end = begin + compute.page_size
    page: Json = {"items": all_of[begin:end]}
    return page | {"nextPageToken": str(end)} if end < len(all_of) else page


def _aggregated(compute: FakeCompute, kind: str, query: dict[str, str]) -> Json:
    """A page of resources, cut across zones; zones without any have a warning, as in the real one."""
    zones = [zone for zones in REGIONS.values() for zone in zones]
    wanted = query.get("filter", "")
    flat = [{"zone": zone, "it": it} for zone in zones for it in compute.in_zone(kind, zone, wanted)]
    page = _page(compute, flat, query)
    items: Json = {f"zones/{z}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}} for z in zones}
    for row in page["items"]:
        items[f"zones/{row['zone']}"].setdefault(kind, []).append(row["it"])
    for zone in compute.unreachable_zones:
        items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"zone {zone} is unreachable"}}
    return page | {"items": items}


_AT = r"/compute/v1/projects/[^/]+"
_ROUTES: tuple[tuple[str, Callable[..., Json]], ...] = (
    (rf"POST {_AT}/regions/([^/]+)/instances/bulkInsert", bulk_insert),
    (rf"GET {_AT}/aggregated/instances", list_instances),
    (rf"GET {_AT}/aggregated/disks", list_disks),
    (rf"GET {_AT}/zones/([^/]+)/instances/([^/]+)", get_instance),
    (rf"DELETE {_AT}/zones/([^/]+)/instances/([^/]+)", delete_instance),
    (rf"DELETE {_AT}/zones/([^/]+)/disks/([^/]+)", delete_disk),
    (rf"POST {_AT}/zones/([^/]+)/instances/([^/]+)/setMetadata", set_metadata),
    (rf"POST {_AT}/(?:regions|zones)/([^/]+)/operations/([^/]+)/wait", wait),
    (rf"GET {_AT}/(?:regions|zones)/([^/]+)/operations", list_operations),
    (rf"POST {_AT}/global/images", insert_image),
    (rf"GET {_AT}/global/images", list_images),
    (rf"DELETE {_AT}/global/images/([^/]+)", delete_image),
    (rf"GET {_AT}/zones/([^/]+)/instances/([^/]+)/serialPort", serial_port),
    (rf"POST {_AT}/global/operations/([^/]+)/wait", wait_global),
    (rf"GET {_AT}/regions/([^/]+)", get_region),
    (rf"GET {_AT}/zones/([^/]+)/machineTypes", list_machine_types),
    (rf"GET {_AT}/zones/([^/]+)/machineTypes/([^/]+)", get_machine_type),
)


class _Handler(BaseHTTPRequestHandler):
    gce: FakeGce
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait 40 ms for the first

    def _serve(self) -> None:
        at = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(at.query).items()}
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._say(200, self.gce.answer(self.command, at.path, query, json.loads(raw) if raw else {}))
        except Refuse as refuse:
            error = {"message": refuse.words, "domain": "global", "reason": refuse.reason}
            self._say(refuse.status, {"error": {"code": refuse.status, "message": refuse.words, "errors": [error]}})

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815

    def _say(self, status: int, answer: Json | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        body = json.dumps(answer).encode()
        with suppress(ConnectionError):  # a client that was killed
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the tests report failures."""
