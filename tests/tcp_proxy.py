"""A network between a program and a server, which a test can cut, slow down, or let swallow all that is sent."""

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Self


class TcpProxy:
    """Forwards connections from a port of this machine; while it is cut, connections break and new ones are refused."""

    def __init__(self, server: Path | tuple[str, int], delay_s: float = 0.0) -> None:
        """`server`: its Unix socket, or its address; `delay_s`: seconds for which each message is on the way."""
        self._server, self._delay_s = server, delay_s
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Break everything."""
        _close(self._listener)
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _close(end)

    def swallow(self) -> None:
        """Take connections and all that comes, and pass nothing on: what a network does that drops packets."""
        self._flows.clear()

    def mend(self) -> None:
        """Take connections again, and pass on what they bring."""
        self._flows.set()
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                address = str(self._server) if isinstance(self._server, Path) else self._server
                far = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
                try:
                    far.connect(address)
                except OSError:  # the server is down: this connection breaks, and the next one is taken
                    _close(near)
                    far.close()
                    continue
                self._pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                time.sleep(self._delay_s)
                if self._flows.is_set():
                    sink.sendall(data)
        _close(source)
        _close(sink)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
