"""A local HTTP server for a test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Quiet:
    """A handler that logs nothing: the tests report failures."""

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def served_by(
    handler: Callable[..., BaseHTTPRequestHandler], address: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[str]:
    """The URL of a server that answers by `handler` until the end of the block."""
    with ThreadingHTTPServer(address, handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://{address[0]}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
