"""The address and consistency of a job's store: the job file's `store`, and two environment variables.

    file:FOLDER                                       a folder of this machine
    redis://[USER[:PASSWORD]@]HOST[:PORT][/NUMBER]    rediss:// for TLS
    mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE      MariaDB or MySQL

After the address: `?socket=PATH` (a Unix socket instead of a host), `?tls=verify|require|off` (rediss:// means
verify) and `?ca=PATH` (the trusted authority; the system's by default). `VCDL_STORE_URL` is used when the job file
names no store, `VCDL_STORE_PASSWORD` when the URL has no password.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from vcdl.errors import StoreError
from vcdl.passwords import MASK

URL_VARIABLE = "VCDL_STORE_URL"
PASSWORD_VARIABLE = "VCDL_STORE_PASSWORD"


class Consistency(StrEnum):
    """How updates combine that two parameter servers make at the same time."""

    STRONG = "strong"
    """Each result counts exactly once, whatever dies."""
    EVENTUAL = "eventual"
    """The paper's read-modify-write without a lock: an update may be overwritten, and the loss is counted."""


class Service(StrEnum):
    """The kind of store."""

    FILE = "file"
    REDIS = "redis"
    MYSQL = "mysql"


class Tls(StrEnum):
    """How a connection is protected."""

    OFF = "off"
    REQUIRE = "require"
    """Encrypted, but the server's identity is not checked: for a self-signed certificate."""
    VERIFY = "verify"
    """Encrypted; the certificate must be signed by `ca` and name the host."""


_SCHEMES = {
    "file": (Service.FILE, Tls.OFF),
    "redis": (Service.REDIS, Tls.OFF),
    "rediss": (Service.REDIS, Tls.VERIFY),
    "mysql": (Service.MYSQL, Tls.OFF),
}
_PORTS = {Service.FILE: 0, Service.REDIS: 6379, Service.MYSQL: 3306}


@dataclass(frozen=True)
class StoreSettings:
    """A store's address; printing it never prints the password."""

    service: Service
    consistency: Consistency = Consistency.STRONG
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    database: str = ""
    """A number for Redis, 0 when empty; a name for MariaDB."""
    socket: str = ""
    tls: Tls = Tls.OFF
    ca: str = ""
    folder: Path = Path()

    @classmethod
    def parse(cls, url: str, consistency: str = "strong", environment: Mapping[str, str] | None = None) -> Self:
        """The settings of a job file's URL ("" when it has none) and of `environment`. Raises StoreError, without the
        password."""
        environment = environment or {}
        url = url or environment.get(URL_VARIABLE, "")
        if not url:
            raise StoreError(f"no store is named: write `store: {{url: …}}` in the job file or set {URL_VARIABLE}")
        try:
            level = Consistency(consistency)
        except ValueError:
            raise StoreError(f"store: consistency is strong or eventual, not {consistency!r}") from None
        try:
            return cls._of_url(url, level, environment.get(PASSWORD_VARIABLE, ""))
        except ValueError:  # its own text may quote a part of the password
            raise StoreError(f"store: the URL is not valid (in a password, write @ : / ? # as %XX); {_HOW}") from None

    @classmethod
    def _of_url(cls, url: str, consistency: Consistency, password: str) -> Self:
        scheme, _, rest = url.partition(":")
        if scheme not in _SCHEMES:
            raise StoreError(f"store: the URL must begin with file:, redis://, rediss:// or mysql://; {_HOW}")
        service, tls = _SCHEMES[scheme]
        if service == Service.FILE:
            folder = unquote(rest.removeprefix("//"))
            if not folder:
                raise StoreError(f"store: file: needs a folder; {_HOW}")
            return cls(service, consistency, folder=Path(folder))
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else ())
        socket, ca = options.pop("socket", ""), options.pop("ca", "")
        tls = Tls(options.pop("tls", tls.value))
        if options:
            raise StoreError("store: the URL has an unknown option; known are socket, tls and ca")
        settings = cls(
            service=service,
            consistency=consistency,
            host=parts.hostname or ("" if socket else "localhost"),
            port=parts.port or _PORTS[service],
            user=unquote(parts.username or ""),
            password=unquote(parts.password or "") or password,
            database=unquote(parts.path.strip("/")),
            socket=socket,
            tls=tls,
            ca=ca,
        )
        if service == Service.MYSQL and not (settings.user and settings.database):
            raise StoreError("store: a mysql:// URL needs a user and a database: mysql://USER@HOST/DATABASE")
        if service == Service.REDIS and not (settings.database or "0").isdecimal():
            raise StoreError(
                "store: what follows the host of a redis:// URL is the number of a database: redis://HOST/0"
            )
        return settings

    @property
    def address(self) -> str:
        """The store's identity, without login and protection of the connection; a folder is absolute."""
        if self.service == Service.FILE:
            return f"file:{self.folder.absolute()}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        address = "" if self.socket else f"{host}:{self.port}"
        database = self.database or ("0" if self.service == Service.REDIS else "")
        query = f"?socket={quote(self.socket)}" if self.socket else ""
        return f"{self.service.value}://{address}/{quote(database)}{query}"

    def __str__(self) -> str:
        """The URL, with the password masked."""
        if self.service == Service.FILE:
            return f"file:{self.folder}"
        scheme = "rediss" if self.service == Service.REDIS and self.tls == Tls.VERIFY else self.service.value
        login = quote(self.user) + (f":{MASK}" if self.password else "")
        options = {
            "socket": self.socket,
            "tls": "" if self.tls == _SCHEMES[scheme][1] else self.tls.value,
            "ca": self.ca,
        }
        query = "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
        host = f"[{self.host}]" if ":" in self.host else self.host
        address = "" if self.socket else f"{host}:{self.port}"
        login_at = f"{login}@" if login else ""
        return f"{scheme}://{login_at}{address}/{quote(self.database)}" + (f"?{query}" if query else "")


_HOW = "for example file:weights, redis://HOST:6379/0 or mysql://USER@HOST/DATABASE"
