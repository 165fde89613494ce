"""TLS to Redis and MariaDB, with a certificate of our own authority."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.store_servers import needs, open_mysql, open_redis, start_mariadb, start_redis
from vcdl.errors import StoreError, StoreUnavailable
from vcdl.testing.folds import fold, weights

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Certificates:
    """Certificates of `localhost`, signed by `ca`; `other_ca` has signed nothing."""

    ca: Path
    other_ca: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    needs("openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other"):
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
            f"{name}.pem",
        )  # fmt: skip
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile",
        "names", "-out", "server.pem",
    )  # fmt: skip
    return Certificates(folder / "ca.pem", folder / "other.pem", folder / "server.pem", folder / "server.key")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def redis_port(short_folder: Path, certificates: Certificates) -> Iterator[int]:
    port = free_port()
    with start_redis(
        short_folder, "--tls-port", str(port), "--tls-cert-file", str(certificates.certificate), "--tls-key-file",
        str(certificates.key), "--tls-ca-cert-file", str(certificates.ca), "--tls-auth-clients", "no",
    ):  # fmt: skip
        yield port


@pytest.fixture
def mysql_port(short_folder: Path, certificates: Certificates) -> Iterator[int]:
    port = free_port()
    with start_mariadb(
        short_folder,
        "--skip-networking=0",
        "--bind-address=127.0.0.1,127.0.0.2",
        f"--port={port}",
        f"--ssl-cert={certificates.certificate}",
        f"--ssl-key={certificates.key}",
        "--require-secure-transport=1",
    ):
        yield port


def test_redis_over_tls(redis_port: int, certificates: Certificates) -> None:
    store = open_redis(f"rediss://localhost:{redis_port}/0?ca={certificates.ca}", "job")
    store.create(weights(0))
    assert store.fold([fold(1)])[0].version == 1
    assert open_redis(f"redis://localhost:{redis_port}/0?tls=require", "job").version() == 1


def test_redis_of_a_stranger_is_refused(redis_port: int, certificates: Certificates) -> None:
    for url in (
        f"rediss://localhost:{redis_port}/0?ca={certificates.other_ca}",
        f"rediss://localhost:{redis_port}/0",
        f"rediss://127.0.0.2:{redis_port}/0?ca={certificates.ca}",
    ):
        with pytest.raises(StoreError, match=r"the TLS connection failed .* ca=PATH") as caught:
            open_redis(url, "job").version()
        assert not isinstance(caught.value, StoreUnavailable), "no use to wait"


def test_mysql_over_tls(mysql_port: int, certificates: Certificates) -> None:
    store = open_mysql(f"mysql://vcdl@localhost:{mysql_port}/vcdl?tls=verify&ca={certificates.ca}", "job")
    store.create(weights(0))
    assert store.fold([fold(1)])[0].version == 1
    assert open_mysql(f"mysql://vcdl@localhost:{mysql_port}/vcdl?tls=require", "job").version() == 1


def test_mysql_of_a_stranger_is_refused(mysql_port: int, certificates: Certificates) -> None:
    for url in (
        f"mysql://vcdl@localhost:{mysql_port}/vcdl?tls=verify&ca={certificates.other_ca}",
        f"mysql://vcdl@localhost:{mysql_port}/vcdl?tls=verify",
        f"mysql://vcdl@127.0.0.2:{mysql_port}/vcdl?tls=verify&ca={certificates.ca}",
    ):
        with pytest.raises(StoreError, match=r"the TLS connection failed .* ca=PATH") as caught:
            open_mysql(url, "job").version()
        assert not isinstance(caught.value, StoreUnavailable), "no use to wait"
