"""The network of the tests goes on after a server that was down."""

import socket
from pathlib import Path

import pytest

from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.server


def test_a_server_that_was_down_is_reached_once_it_is_up(tmp_path: Path) -> None:
    server = tmp_path / "server.sock"
    with TcpProxy(server) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as refused:
            assert refused.recv(1) == b""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(server))
            listener.listen()
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as near:
                near.sendall(b"hello")
                far, _ = listener.accept()
                with far:
                    assert far.recv(5) == b"hello"
