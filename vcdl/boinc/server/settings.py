"""The settings of a server, /etc/vcdl/NAME.json: the options of install, and facts that later commands need."""

import ipaddress
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from vcdl.boinc.project import files
from vcdl.errors import ServerError

ETC = Path("/etc/vcdl")
_FORMAT = 1
"""Format number of the settings file, so that a later version can refuse or convert it."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+")
LETS_ENCRYPT, SELF_SIGNED, NO_TLS = "letsencrypt", "self-signed", ""


@dataclass(frozen=True)
class ServerSettings:
    """The settings of one project's server: names, paths, TLS and backups."""

    name: str
    """Short name of the project, from which its folder, database, units and part of the URL are named."""
    host: str
    """Host name or address under which clients reach the machine."""
    email: str
    boinc: Path
    """Folder of BOINC's server, built."""
    tls: str = NO_TLS
    """How the site gets TLS: `letsencrypt`, `self-signed`, or `CERTIFICATE,KEY`; empty: plain HTTP."""
    title: str = "VCDL"
    user: str = "boincadm"
    redis: bool = False
    firewall: bool = False
    backup_to: str = ""
    """Place of nightly backups: a folder or s3://BUCKET/PREFIX; empty: no timer makes backups."""
    backup_for: str = ""
    """Comma-separated recipients of age or gpg; empty: backups are not encrypted."""
    python: Path = Path(sys.executable)
    """The Python whose VCDL the project uses."""
    python_before: Path | None = None
    """The Python before the last upgrade."""

    def check(self) -> None:
        """Check that the settings are valid and fit each other.

        Raises:
            ServerError: A setting is wrong, or two do not fit each other.
        """
        if not _NAME.fullmatch(self.name):
            raise ServerError(f"--name {self.name}: give 1 to 16 lower-case letters, digits and _, a letter first")
        if not (_HOST.fullmatch(self.host) or is_address(self.host)):
            raise ServerError(
                f"--host {self.host}: give a full name with a dot, or an IP address: clients accept no other"
            )
        if not re.fullmatch(r"\S*@\S*", self.email):
            raise ServerError(f"--email {self.email}: give the address of the person who looks after the server")
        if self.tls == LETS_ENCRYPT and is_address(self.host):
            raise ServerError("--tls letsencrypt: certificates are made for names, and --host is an address")
        if self.tls not in (NO_TLS, LETS_ENCRYPT, SELF_SIGNED) and self.tls.count(",") != 1:
            raise ServerError(f"--tls {self.tls}: give letsencrypt, self-signed, or CERTIFICATE,KEY")
        # Refuse keys of both age and gpg, because one program encrypts for all recipients.
        if is_of_age(self.backup_for) != all(is_of_age(key) for key in self.backup_for.split(",")):
            raise ServerError(f"--backup-for {self.backup_for}: give keys of age, or of gpg")
        # The title goes into XML, PHP and a command line.
        if not re.fullmatch(r"[^<>&\"'\\\n]{1,60}", self.title):
            raise ServerError(f"--title {self.title}: use 1 to 60 characters, none of < > & \" ' \\")

    @property
    def project(self) -> Path:
        return Path("/home") / self.user / "projects" / self.name

    @property
    def url(self) -> str:
        """The address to which clients attach."""
        return f"{self.url_base}{self.name}/"

    @property
    def url_base(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}/"

    @property
    def certificate(self) -> tuple[Path, Path]:
        """The files of certificate and key."""
        if self.tls == LETS_ENCRYPT:
            folder = Path("/etc/letsencrypt/live") / self.host
            return folder / "fullchain.pem", folder / "privkey.pem"
        if self.tls == SELF_SIGNED:
            return ETC / f"{self.name}.crt", ETC / f"{self.name}.key"
        certificate, _, key = self.tls.partition(",")
        return Path(certificate), Path(key)

    @property
    def file(self) -> Path:
        return settings_file(self.name)

    def to_json(self) -> bytes:
        return (json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, default=str) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes, name: str) -> Self:
        """Decode a settings file.

        Args:
            text: The file's content.
            name: The file, for messages.

        Raises:
            ServerError: The content is damaged, or from another version of VCDL.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw.pop("format") != _FORMAT:
                raise ServerError(f"{name} is of another version of vcdl: use that one, or a later one")
            paths = {key: Path(raw[key]) for key in ("boinc", "python", "python_before") if raw.get(key)}
            settings = cls(**raw | paths)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"{name} cannot be read ({error!r}): fix it, or install again with all options") from None
        settings.check()
        return settings

    def with_changes(self, options: Mapping[str, Any]) -> Self:
        """Return the settings, changed by those of the operator's options that are not None."""
        return replace(self, **{key: value for key, value in options.items() if value is not None})


def settings_file(name: str) -> Path:
    return ETC / f"{name}.json"


def is_of_age(recipients: str) -> bool:
    """Return whether the recipients are keys of age; otherwise they are gpg's."""
    return recipients.startswith("age1")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def load_installed(name: str | None = None) -> ServerSettings:
    """Return the settings of a project of this machine; without a name, of the only one.

    Raises:
        ServerError: There is none, or there are several.
    """
    names = [name] if name else sorted(path.stem for path in ETC.glob("*.json"))
    if not names:
        raise ServerError(
            f"no server is installed here (there is nothing in {ETC}): `vcdl server install` makes one, "
            "and `vcdl server adopt` adds one that was made by hand"
        )
    if len(names) > 1:
        raise ServerError(f"several projects are here ({', '.join(names)}): say which with --name")
    text = files.read(settings_file(names[0]))
    if text is None:
        raise ServerError(f"there is no {settings_file(names[0])}: `vcdl server install --name {names[0]}` makes it")
    return ServerSettings.from_json(text, str(settings_file(names[0])))
