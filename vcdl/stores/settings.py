"""The address and consistency of a job's store: the job file's `store`, and two environment variables.

    file:FOLDER                                       a folder of this machine
    redis://[USER[:PASSWORD]@]HOST[:PORT][/NUMBER]    rediss:// for TLS
    mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE      MariaDB or MySQL

After the address: `?socket=PATH` (a Unix socket instead of a host), `?tls=verify|require|off` (rediss:// means
verify) and `?ca=PATH` (the trusted authority; the system's by default). `VCDL_STORE_URL` is used when the job file
names no store, `VCDL_STORE_PASSWORD` when the URL has no password.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from vcdl.errors import MASK, PluginError, StoreError
from vcdl.files.plugins import Parts

URL_VARIABLE = "VCDL_STORE_URL"
PASSWORD_VARIABLE = "VCDL_STORE_PASSWORD"


class Consistency(StrEnum):
    """What happens if two parameter servers update the weights at the same time."""

    STRONG = "strong"
    """Servers take turns, and each result counts exactly once, whichever process is killed."""
    EVENTUAL = "eventual"
    """The paper's read-modify-write without a lock: an update may be overwritten, and the loss is counted."""


class Tls(StrEnum):
    """How the connection to a store's server is protected."""

    OFF = "off"
    REQUIRE = "require"
    """Encrypted, but the server's identity is not checked: for a self-signed certificate."""
    VERIFY = "verify"
    """Encrypted; the certificate must be signed by `ca` and name the host."""


@dataclass(frozen=True)
class StoreKind:
    """One kind of store, by the scheme of its URL; the entry point `vcdl.stores` has the name of the scheme."""

    scheme: str
    opens: str
    """The function `module:name` that opens such a store, imported when needed: (settings, job, size, state=…) →
    WeightStore."""
    port: int | None = None
    """The usual port of a server, or None if it is not a server and the URL is `SCHEME:PATH`."""
    database: str = ""
    """The database of a URL that names none."""
    fault: Callable[["StoreSettings"], str | None] = lambda settings: None
    """A function that returns the fault in a URL's settings, or None."""
    over_tls: str | None = None
    """The scheme that means the same store with `tls=verify`, or None without such a scheme."""


@dataclass(frozen=True)
class StoreSettings:
    """A store's address, login and consistency. Its texts (`str`, `repr`) never contain the password."""

    service: str
    """The kind of store: its scheme, without TLS."""
    consistency: Consistency = Consistency.STRONG
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    database: str = ""
    """Its database: a name for MariaDB, a number for Redis (0 if empty)."""
    socket: str = ""
    tls: Tls = Tls.OFF
    ca: str = ""
    folder: Path = Path()
    """The folder of a store on this machine."""

    @classmethod
    def parse(cls, url: str, consistency: str = "strong", environment: Mapping[str, str] | None = None) -> Self:
        """Parse a store's URL, with a password from the environment if the URL has none.

        Args:
            url: The job file's URL, or "" for the one in the environment.
            consistency: `strong` or `eventual`.
            environment: The environment variables to use; None for none.

        Raises:
            StoreError: The URL is invalid; the message never contains the password.
        """
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
            raise StoreError(f"store: the URL is invalid (in a password, write @ : / ? # as %XX); {_HOW}") from None

    @classmethod
    def _of_url(cls, url: str, consistency: Consistency, password: str) -> Self:
        scheme, _, rest = url.partition(":")
        kind, tls = _kind_of(scheme)
        if kind.port is None:
            folder = unquote(rest.removeprefix("//"))
            if not folder:
                raise StoreError(f"store: {kind.scheme}: needs a path; {_HOW}")
            return cls(kind.scheme, consistency, folder=Path(folder))
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else ())
        socket, ca = options.pop("socket", ""), options.pop("ca", "")
        tls = Tls(options.pop("tls", tls.value))
        if options:
            raise StoreError("store: the URL has an unknown option; known are socket, tls and ca")
        settings = cls(
            service=kind.scheme,
            consistency=consistency,
            host=parts.hostname or ("" if socket else "localhost"),
            port=parts.port or kind.port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or "") or password,
            database=unquote(parts.path.strip("/")),
            socket=socket,
            tls=tls,
            ca=ca,
        )
        if (fault := kind.fault(settings)) is not None:
            raise StoreError(f"store: {fault}")
        return settings

    @property
    def kind(self) -> StoreKind:
        """The kind of store.

        Raises:
            PluginError: It is a plugin that cannot be loaded.
        """
        return STORES[self.service]

    @property
    def is_folder(self) -> bool:
        """Whether the weights are in a folder of this machine, which is lost only with the disk."""
        return self.service == FILE.scheme

    @property
    def address(self) -> str:
        """The URL that identifies the store, without login, TLS settings and relative paths."""
        if self.kind.port is None:
            return f"{self.service}:{self.folder.absolute()}"
        database = self.database or self.kind.database
        query = f"?socket={quote(self.socket)}" if self.socket else ""
        return f"{self.service}://{self._host_and_port}/{quote(database)}{query}"

    @property
    def _host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "" if self.socket else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the URL with the password masked."""
        if self.kind.port is None:
            return f"{self.service}:{self.folder}"
        secure = self.kind.over_tls if self.tls == Tls.VERIFY else None
        login = quote(self.user) + (f":{MASK}" if self.password else "")
        options = {"socket": self.socket, "tls": "" if secure or self.tls == Tls.OFF else self.tls.value, "ca": self.ca}
        query = "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
        address = f"{login}@{self._host_and_port}" if login else self._host_and_port
        return f"{secure or self.service}://{address}/{quote(self.database)}" + (f"?{query}" if query else "")


def _kind_of(scheme: str) -> tuple[StoreKind, Tls]:
    """Return the kind of store for a URL's scheme, and the protection that the scheme itself implies.

    Raises:
        StoreError: The scheme is unknown.
    """
    if scheme not in STORES:
        raise StoreError(f"store: the URL must start with one of {', '.join(STORES)}; {_HOW}; {STORES.how_to_add}")
    try:
        kind = STORES[scheme]
    except PluginError as error:
        raise StoreError(str(error)) from error
    return (kind, Tls.OFF) if kind.scheme == scheme else (kind, Tls.VERIFY)


def _login_is_missing(settings: StoreSettings) -> str | None:
    """Return the fault that user or database is missing, or None."""
    whole = settings.user and settings.database
    return None if whole else "a mysql:// URL needs a user and a database: mysql://USER@HOST/DATABASE"


def _number_is_wrong(settings: StoreSettings) -> str | None:
    """Return the fault that the database is no number, or None."""
    if (settings.database or "0").isdecimal():
        return None
    return "a redis:// URL has the number of a database after the host: redis://HOST/0"


FILE = StoreKind("file", opens="vcdl.stores.file:FileStore.of_job")
REDIS = StoreKind(
    "redis", opens="vcdl.stores.redis:RedisStore", port=6379, database="0", fault=_number_is_wrong, over_tls="rediss"
)
MYSQL = StoreKind("mysql", opens="vcdl.stores.mysql:MysqlStore", port=3306, fault=_login_is_missing)


def _wrong(name: str, found: object) -> str | None:
    """Return what is wrong with a plugin's entry of this name, or None if it is a valid kind of store."""
    if not isinstance(found, StoreKind):
        return "is not a vcdl.stores.settings.StoreKind"
    both = "both names must be the same"
    return None if name in (found.scheme, found.over_tls) else f"calls itself {found.scheme!r}: {both}"


STORES: Parts[StoreKind] = Parts("store", _wrong)
"""Every kind of store, by the scheme of its URL."""
_HOW = "for example file:weights, redis://HOST:6379/0 or mysql://USER@HOST/DATABASE"
