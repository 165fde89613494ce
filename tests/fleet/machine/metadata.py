"""The metadata services of both clouds, as strict about headers as the real ones."""

import contextlib
import json
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.http_server import Quiet, served_by


class Metadata(ABC):
    """A machine's metadata, which the test changes while the agent asks."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """By path below the service's root; any other path is 404."""
        self.broken = False
        """Answer every request with the page of a broken proxy."""
        self.failing = ""
        """Paths with this in them are answered with 500."""
        self.holds_back = True
        """Whether an answer waits for a change when it is asked to; a virtual clock cannot."""
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self.url = ""
        self.changed = threading.Condition()

    def set(self, path: str, value: str | None) -> None:
        """Set a value; None removes it."""
        with self.changed:
            if value is None:
                self.values.pop(path, None)
            else:
                self.values[path] = value
            self.changed.notify_all()

    @abstractmethod
    def notify(self) -> None:
        """Announce that the cloud takes the machine."""

    @abstractmethod
    def withdraw(self) -> None:
        """Take the notice back."""

    @abstractmethod
    def mark(self, since_s: float) -> None:
        """Set the fleet's drain mark."""

    @abstractmethod
    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """The status and body for a request."""


class AwsMetadata(Metadata):
    """IMDSv2: it answers only with one of its own tokens."""

    cloud = "aws"

    def notify(self) -> None:
        notice = {"action": "terminate", "time": "2026-11-21T12:00:00Z"}
        self.set("/latest/meta-data/spot/instance-action", json.dumps(notice))

    def withdraw(self) -> None:
        self.set("/latest/meta-data/spot/instance-action", None)

    def mark(self, since_s: float) -> None:
        self.set("/latest/meta-data/tags/instance/vcdl-until", f"{since_s:.0f}")

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        if path == "/latest/api/token":
            lifetime_s = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT" or not lifetime_s.isdecimal() or not 1 <= int(lifetime_s) <= 21_600:
                return 400, ""
            token = secrets.token_hex(8)
            self.tokens.add(token)
            return 200, token
        if headers.get("x-aws-ec2-metadata-token") not in self.tokens:
            return 401, ""
        return (200, self.values[path]) if path in self.values else (404, "")


class GcpMetadata(Metadata):
    """Compute Engine's service: a header against forged requests, and answers that wait for a change."""

    cloud = "gcp"

    def __init__(self) -> None:
        super().__init__()
        self.values["/computeMetadata/v1/instance/preempted"] = "FALSE"

    def notify(self) -> None:
        self.set("/computeMetadata/v1/instance/preempted", "TRUE")

    def withdraw(self) -> None:
        self.set("/computeMetadata/v1/instance/preempted", "FALSE")

    def mark(self, since_s: float) -> None:
        self.set("/computeMetadata/v1/instance/attributes/vcdl-until", f"{since_s:.0f}")

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        if headers.get("metadata-flavor") != "Google":
            return 403, ""
        url = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        until_s = time.monotonic() + float(query.get("timeout_sec", "inf"))
        with self.changed:
            while (
                self.holds_back
                and query.get("wait_for_change") == "true"
                and query.get("last_etag") == self.etag(url.path)
                and (left_s := until_s - time.monotonic()) > 0
            ):
                self.changed.wait(min(left_s, 60))
            return (200, self.values[url.path]) if url.path in self.values else (404, "")

    def etag(self, path: str) -> str:
        return f"{hash(self.values.get(path, '')):x}"


M = TypeVar("M", bound=Metadata)


@contextmanager
def served(metadata: M, address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[M]:
    """Serve the metadata, at a URL of their own if no address is given, until the end of the block."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            metadata.asked.append(f"{self.command} {self.path}")
            if metadata.broken:
                status, body = 200, "<html>the proxy is out of order</html>"
            elif metadata.failing and metadata.failing in self.path:
                status, body = 500, ""
            else:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, body = metadata.answer(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if isinstance(metadata, GcpMetadata):
                self.send_header("ETag", metadata.etag(urlsplit(self.path).path))
            with contextlib.suppress(ConnectionError):  # an agent that was killed
                self.end_headers()
                self.wfile.write(body.encode())

        def do_PUT(self) -> None:
            self.do_GET()

    with served_by(Handler, address) as metadata.url:
        yield metadata
