"""The project's web server, with a transitioner beside it, in threads of the test's process."""

import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import MySQLdb

from tests.boinc.standin import uploads
from tests.boinc.standin.project import StandinProject
from tests.boinc.standin.scheduler import Conversation
from tests.boinc.standin.transitioner import LOCKED, transition

_TRANSITION_S = 0.5


@dataclass(frozen=True)
class Download:
    """A file that a client fetched."""

    name: str
    offset_bytes: int


class StandinServer:
    """Serves a project from `with` to the end of its block, and transitions its workunits twice a second.

    An error in the stand-in itself fails the test: it is raised at the end of the block.
    """

    def __init__(self, project: StandinProject) -> None:
        self.project = project
        self.downloads: list[Download] = []
        self.requests: list[str] = []
        """Each scheduler request, as the client sent it."""
        self.is_closed = False
        self._errors: list[str] = []
        self._stop = threading.Event()
        address = urlsplit(project.url)
        assert address.port is not None
        self._http = _Http(("127.0.0.1", address.port), self)
        self._threads = [
            threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True),
            threading.Thread(target=self._transition, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._stop.set()
        self._http.shutdown()
        for thread in self._threads:
            thread.join()
        self._http.server_close()
        if kind is None:
            assert not self._errors, "\n".join(self._errors)

    def downloads_of(self, name: str) -> int:
        """How often a file was fetched from its beginning, packed or not."""
        return sum(each.name in (name, f"{name}.gz") and each.offset_bytes == 0 for each in self.downloads)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """An outage: to the end of the block no request gets an answer."""
        self.is_closed = True
        try:
            yield
        finally:
            self.is_closed = False

    def schedule(self, request: bytes) -> str:
        """Answer a scheduler request."""
        self.requests.append(request.decode("utf-8", "replace"))
        with closing(self.project.connect()) as connection:
            while True:
                try:
                    reply = Conversation(self.project, connection, request).answer()
                    connection.commit()
                    return reply
                except MySQLdb.OperationalError as error:
                    if error.args[0] not in LOCKED:
                        raise
                    connection.rollback()

    def failed(self) -> None:
        """Keep the exception that is being handled."""
        self._errors.append(traceback.format_exc())

    def _transition(self) -> None:
        while not self._stop.wait(_TRANSITION_S):
            try:
                transition(self.project)
            except Exception:
                self.failed()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], standin: StandinServer) -> None:
        super().__init__(address, _Handler)
        self.standin = standin


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def parse_request(self) -> bool:
        if self.server.standin.is_closed:
            self.close_connection = True
            return False
        return super().parse_request()

    def do_GET(self) -> None:
        project = self.server.standin.project
        if self.path == "/":
            page = f'<html><head>\n<link rel="boinc_scheduler" href="{project.url}cgi">\n</head></html>\n'
            self._send(200, page.encode(), "text/html")
        elif self.path == "/get_project_config.php":
            page = "<project_config>\n    <name>stand-in</name>\n    <web_stopped>0</web_stopped>\n</project_config>\n"
            self._send(200, page.encode(), "text/xml")
        elif self.path.startswith("/download/") and ".." not in self.path:
            self._send_file(Path(project.config.settings["download_dir"]) / self.path.removeprefix("/download/"))
        else:
            self._send(404, b"", "text/plain")

    def do_POST(self) -> None:
        standin, size_bytes = self.server.standin, int(self.headers["Content-Length"])
        try:
            if self.path == "/cgi":
                reply = standin.schedule(self.rfile.read(size_bytes))
            else:
                reply = uploads.answer(standin.project, self.rfile, size_bytes)
        except Exception:
            standin.failed()
            self.close_connection = True
            self._send(500, b"", "text/plain")
        else:
            self._send(200, reply.encode(), "text/xml")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _send_file(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError:
            self._send(404, b"", "text/plain")
            return
        wanted = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        offset_bytes = int(wanted)
        self.server.standin.downloads.append(Download(path.name, offset_bytes))
        if offset_bytes:
            more = {"Content-Range": f"bytes {offset_bytes}-{len(content) - 1}/{len(content)}"}
            self._send(206, content[offset_bytes:], "application/octet-stream", more)
        else:
            self._send(200, content, "application/octet-stream")

    def _send(self, status: int, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
