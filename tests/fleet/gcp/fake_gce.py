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

from tests.fleet.gcp.fake_compute import ROUTES, FakeCompute, Json, Refuse

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
        """Refuse the next calls of a route, which has the name of FakeCompute's method."""
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
        for pattern, route in ROUTES:
            if found := re.fullmatch(pattern, f"{method} {path}"):
                self.calls.append(route)
                fault = self._faults[route].pop(0) if self._faults.get(route) else route
                if isinstance(fault, Refuse):
                    raise fault
                if route == "wait":
                    time.sleep(0.01)
                with self.compute.lock:
                    self.compute.finish_due()
                    answer: Json = getattr(self.compute, route)(query, body, *found.groups())
                return None if fault is None else answer
        raise Refuse(404, "notFound", f"the fake has no route {method} {path}")


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
