"""What a client keeps, sends and says."""

import json
import ssl
import subprocess
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tests.store_servers import needs
from tests.web.served import served
from vcdl.commands.login import login
from vcdl.errors import ExitCode, GridError, GridUnavailable, JobError
from vcdl.remote.connections import (
    ServiceConnection,
    check_url,
    connection_of,
    connections_file,
    keep_connection,
    service_of,
)
from vcdl.remote.parcel import parcel_of
from vcdl.remote.service_client import ServiceClient
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import Role


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_connections_are_the_owners_alone() -> None:
    keep_connection(ServiceConnection("lab", "https://lab.example", "vcdl_1"))
    keep_connection(ServiceConnection("here", "http://127.0.0.1:8630", "vcdl_2"))
    assert connection_of("lab") == ServiceConnection("lab", "https://lab.example", "vcdl_1")
    assert connections_file().stat().st_mode & 0o077 == 0
    with pytest.raises(JobError, match="there is no service 'x' \\(lab, here\\): `vcdl login URL` adds one"):
        connection_of("x")
    connections_file().write_text("{")
    with pytest.raises(JobError, match="fix or remove it"):
        connection_of("lab")


@pytest.mark.parametrize("url", ["http://lab.example", "ftp://x", "lab.example", "https://", "file:///etc/passwd"])
def test_a_token_goes_nowhere_in_the_clear(url: str) -> None:
    with pytest.raises(JobError):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://lab.example/jobs/demo", "https://lab.example"),
        ("https://lab.example/vcdl/jobs/demo/", "https://lab.example/vcdl"),
        ("https://lab.example/login?code=1", "https://lab.example"),
        ("https://lab.example/api/v1/version", "https://lab.example"),
        ("https://jobs:8630/vcdl", "https://jobs:8630/vcdl"),
        ("https://jobs", "https://jobs"),
    ],
)
def test_the_service_of_a_page_is_found(url: str, service: str) -> None:
    assert service_of(url) == service


def test_a_page_with_a_code_is_refused_with_the_service_and_without_the_code() -> None:
    with pytest.raises(JobError, match=r"/login is not the address .*: give https://lab.example instead$"):
        check_url("https://lab.example/login?code=secret")


def test_a_parcel_has_the_files_under_names_of_its_own(home: Path) -> None:
    np.savez(home / "my data.npz", x_train=np.zeros((9, 2)), y_train=np.zeros(9))
    (home / "job.yaml").write_text("name: away\nmodel: {builtin: mlp}\ndata: {npz: my data.npz}\n")
    with parcel_of(home / "job.yaml", ["stop.epochs=2"]) as parcel:
        assert json.loads(parcel.job) == {
            "name": "away",
            "model": {"builtin": "mlp"},
            "data": {"npz": "data.npz"},
            "stop": {"epochs": 2},
        }
        (file,) = parcel.files
        assert b"".join(content for _, content in file.read()) == (home / "my data.npz").read_bytes()
        (home / "my data.npz").write_bytes(b"other")
        with pytest.raises(JobError, match="changes while it is sent"):
            list(file.read())


def test_what_lies_on_this_machine_alone_is_refused(home: Path) -> None:
    (home / "job.yaml").write_text("name: away\nmodel: {builtin: mlp}\ndata: {from: x.csv}\n")
    (home / "x.csv").write_text("a,label\n1,0\n")
    with pytest.raises(JobError), parcel_of(home / "job.yaml"):
        pass


@pytest.mark.server
@pytest.mark.slow
def test_a_login_with_a_wrong_address_says_what_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = home / "runs"
    runs.mkdir()
    monkeypatch.setenv("VCDL_TOKEN", Accounts(runs).add("ada", Role.READER, 1))
    with served(runs) as service:
        began_s = time.monotonic()
        with pytest.raises(GridError, match="answers without TLS: use http://"):
            login(service.url.replace("http", "https"))
        assert time.monotonic() - began_s < 5, "nothing is gained by trying again"
        for page in ("/jobs/demo", "/hosts", "/login"):
            with pytest.raises(JobError, match=f"looks like a page .*: the address of its service is {service.url}$"):
                login(f"{service.url}{page}")
        assert not connections_file().exists()
        assert login(f"{service.url}/") == ExitCode.OK


def test_a_service_that_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    with pytest.raises(GridUnavailable, match=r"lab .* does not answer"):
        ServiceClient(ServiceConnection("lab", "http://127.0.0.1:9", "vcdl_1")).version()


@pytest.mark.server
def test_a_client_waits_as_long_as_a_busy_service_asks_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    asked = iter(["7", "86400", "Wed, 21 Oct 2026 07:28:00 GMT", ""])

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wait = next(asked, None)
            self.send_response(200 if wait is None else 429)
            if wait:
                self.send_header("Retry-After", wait)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr("time.sleep", waited.append)
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        ServiceClient(ServiceConnection("lab", f"http://127.0.0.1:{server.server_port}", "vcdl_1")).ask("GET", "/jobs")
        server.shutdown()
    assert waited == [7.0, 30.0, 3.0, 4.0]


def test_data_are_sent_again_for_minutes_while_the_service_is_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now_s = [0.0]
    tried: list[str] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    def away(_self: ServiceClient, method: str, path: str, *_: object) -> None:
        tried.append(path)
        raise GridUnavailable("away")

    monkeypatch.setattr("vcdl.remote.service_client.time.sleep", sleep)
    monkeypatch.setattr("vcdl.remote.service_client.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr(ServiceClient, "_open", away)
    client = ServiceClient(ServiceConnection("lab", "http://127.0.0.1:1", "t"))
    with pytest.raises(GridUnavailable):
        client.ask("PUT", "/chunks/abc", b"x")
    assert 600 <= sum(slept) < 660
    assert max(slept) == 30.0
    slept.clear()
    with pytest.raises(GridUnavailable):
        client.ask("GET", "/version")
    assert len(slept) == 5


@pytest.mark.server
@pytest.mark.slow
def test_a_certificate_that_is_not_trusted_is_said_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("openssl")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=home, check=True, capture_output=True,
    )  # fmt: skip
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "cert.pem", home / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("vcdl.remote.service_client.time.sleep", lambda _: pytest.fail("it is asked again"))
    try:
        with pytest.raises(GridError, match=r"has a certificate that is not trusted here .*SSL_CERT_FILE"):
            ServiceClient(ServiceConnection("lab", f"https://localhost:{server.server_port}", "t")).version()
    finally:
        server.shutdown()
        server.server_close()
