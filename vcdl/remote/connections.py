"""Store the addresses and tokens of services by name, in a file that only the user may read."""

import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vcdl.errors import JobError, folder_errors
from vcdl.files.atomic import atomic_write, keep_first

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_PAGE = re.compile(r"/((jobs|api)(/.*)?|login|hosts|server|fleets)?/?$")
"""Matches the end of the path in the URL of a service's page or request, so that what is left is the service's path."""


@dataclass(frozen=True)
class ServiceConnection:
    """A service that the user has logged in to, with the token for it."""

    name: str
    """Name by which `--server` refers to the service."""
    url: str
    """Address of the service, without a slash at its end."""
    token: str


def connections_file() -> Path:
    """Return the path of the file with the connections: `vcdl/connections.json` in XDG_CONFIG_HOME or `~/.config`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "vcdl" / "connections.json"


def check_url(url: str) -> str:
    """Check that a token may be sent to an address, and return the address without a slash at its end.

    Raises:
        JobError: The URL is not a service's address, or a token would be sent to it without encryption.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        known = parts.scheme and parts.hostname
        raise JobError(
            f"{url.partition('?')[0]} is not the address of a service: "
            f"give {service_of(url) if known else 'one like https://train.example.org'} instead"
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise JobError(f"{url} has no TLS, so anybody on the way could read the token: use https, or `ssh -L`")
    return url.rstrip("/")


def service_of(url: str) -> str:
    """Return the address of a service from the URL of one of its pages; return any other URL without its query."""
    parts = urlsplit(url)
    return parts._replace(path=_PAGE.sub("", parts.path), query="", fragment="").geturl()


def keep_connection(connection: ServiceConnection) -> Path:
    """Store a connection under its name, replacing an older one of that name, and return the path of the file.

    Raises:
        RunFolderError: The file cannot be written.
        JobError: The file cannot be read.
    """
    path = connections_file()
    # Read the file right before it is written, because another `vcdl login` may have added a connection.
    known = {**_read(path), connection.name: {"url": connection.url, "token": connection.token}}
    with folder_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, private=True) as temporary:
            temporary.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return path


def connection_of(name: str) -> ServiceConnection:
    """Return the connection that `vcdl login` has stored under a name.

    Raises:
        JobError: `vcdl login` has stored none of that name, or the file cannot be read.
    """
    known = _read(connections_file())
    if name not in known:
        raise JobError(
            f"there is no service {name!r} ({', '.join(known) or 'none is known'}): `vcdl login URL` adds one"
        )
    # Check the address again, because the file may have been edited, and a token must never be sent unencrypted.
    return ServiceConnection(name, check_url(known[name]["url"]), known[name]["token"])


def machine_key() -> str:
    """Return the secret by which services recognise the pilots of this machine; the first call creates and stores it.

    Raises:
        RunFolderError: The secret cannot be read or stored.
    """
    path = connections_file().with_name("machine.key")
    with folder_errors(path):
        # Keep the secret of whichever pilot stores one first: a batch queue may start several at the same time, and all
        # pilots of a machine must have the same.
        path.parent.mkdir(parents=True, exist_ok=True)
        return keep_first(path, secrets.token_hex(32).encode()).decode()


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(one["url"], str) and isinstance(one["token"], str) for one in found.values()):
            raise ValueError("not a table of services")
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise JobError(f"{path} cannot be read ({error}): fix or remove it, then `vcdl login` again") from error
