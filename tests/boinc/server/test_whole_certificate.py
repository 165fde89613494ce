"""A certificate of Let's Encrypt, from Pebble, its own server for tests: `make test-server`."""

import json
import os
from pathlib import Path

import pytest

from tests.boinc.server.machine import Machine
from tests.boinc.server.stage import BOINC, staged

HOST = "train.example.org"
ACME = {
    "pebble": {
        "listenAddress": "127.0.0.1:14000",
        "managementListenAddress": "127.0.0.1:15000",
        "certificate": "/etc/pebble/cert.pem",
        "privateKey": "/etc/pebble/key.pem",
        "httpPort": 80,
        "tlsPort": 443,
    }
}
_OWN = (
    "mkdir /etc/pebble; openssl req -x509 -newkey rsa:2048 -nodes -keyout /etc/pebble/key.pem -out /etc/pebble/cert.pem"
    " -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>&1"
)
_ROOT = "import urllib.request as u; print(u.urlopen('https://localhost:15000/roots/0').read().decode())"
_SERIAL = (
    f"echo | openssl s_client -connect 127.0.0.1:443 -servername {HOST} 2>&1 | openssl x509 -noout -serial -issuer"
)

pytestmark = [
    pytest.mark.boinc,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not BOINC or os.geteuid() != 0, reason="VCDL_BOINC_TREE names no built tree, or not root"),
]


def serve_acme(machine: Machine) -> None:
    """Have Pebble serve, and certbot ask it; the machine trusts its certificates."""
    trusted = machine.root / "usr/local/share/ca-certificates"
    machine.run("sh", "-c", f"apt-get update -qq && apt-get install -y -qq pebble && {_OWN}")
    (machine.root / "etc/pebble/config.json").write_text(json.dumps(ACME))
    (trusted / "acme.crt").write_bytes((machine.root / "etc/pebble/cert.pem").read_bytes())
    machine.run("update-ca-certificates")
    machine.run("systemd-run", "--quiet", "--unit=pebble", "pebble", "-config", "/etc/pebble/config.json")
    machine.run("sleep", "5")
    (trusted / "acme-root.crt").write_text(machine.run("python3", "-c", _ROOT))
    machine.run("update-ca-certificates")
    (machine.root / "etc/letsencrypt").mkdir()
    (machine.root / "etc/letsencrypt/cli.ini").write_text("server = https://localhost:14000/dir\n")


def test_a_certificate_of_lets_encrypt_comes_is_used_and_is_renewed() -> None:
    with staged() as stage:
        server = stage("acme", 13, packaged="server")
        serve_acme(server)
        install: list[str | Path] = ["/opt/vcdl/bin/vcdl", "server", "install", "--boinc", BOINC, "--host", HOST]
        install += ["--email", "a@example.org", "--tls", "letsencrypt"]
        lines = server.run(*install).splitlines()  # with a cli.ini of the operator's, of which dpkg would ask
        assert f"clients attach to https://{HOST}/vcdl/" in lines
        first = server.run("sh", "-c", _SERIAL)
        assert "Pebble" in first
        server.run("certbot", "renew", "--force-renewal", "--no-random-sleep-on-renew")
        second = server.run("sh", "-c", f"sleep 2; {_SERIAL}")
        assert "Pebble" in second
        assert second != first, "Apache serves the renewed one"
        assert server.run("systemctl", "is-active", "certbot.timer").strip() == "active"
        assert not [line for line in server.run(*install).splitlines() if line.startswith("done ")]
