"""A web server that answers by a byte now and then."""

import socket
import threading
import time
from contextlib import suppress

IN_HEADERS = b"HTTP/1.1 200 OK\r\nSlow: "
IN_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
"""Begins of answers."""


class Trickle:
    """A server that sends the begin of an answer at once, and then a byte now and then, as long as anybody waits."""

    def __init__(self, begin: bytes) -> None:
        self.has_ended = threading.Event()
        self._begin, self._socket = begin, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, self._socket, suppress(OSError):  # nobody waits any more
            connection.sendall(self._begin)
            for _ in range(50):
                time.sleep(0.1)
                connection.sendall(b"x")
            self.has_ended.set()
