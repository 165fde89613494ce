"""A stand-in project's config.xml: written once, read by each part anew, as BOINC's own programs do."""

import hashlib
import os
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.boinc.standin.schema import Connection

if TYPE_CHECKING:
    from benchmarks.private_servers import PrivateServer


@dataclass(frozen=True)
class Database:
    """How the project's MariaDB is reached: through its socket."""

    name: str
    user: str
    socket: Path

    @classmethod
    def of(cls, server: "PrivateServer") -> Self:
        """The database that `tests.store_servers.start_mariadb` makes."""
        return cls("vcdl", "vcdl", server.socket)

    def connect(self) -> Connection:
        """A new connection, without autocommit."""
        import MySQLdb

        return MySQLdb.connect(db=self.name, user=self.user, unix_socket=str(self.socket), charset="utf8mb4")


@dataclass(frozen=True)
class ProjectConfig:
    """What the stand-in needs of config.xml."""

    path: Path
    settings: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Self:
        config = ElementTree.parse(path / "config.xml").getroot().find("config")
        assert config is not None, "config.xml has no <config>"
        return cls(path, {each.tag: (each.text or "").strip() or "1" for each in config})

    def flag(self, name: str) -> bool:
        return self.settings.get(name, "0") != "0"

    def number(self, name: str) -> float:
        return float(self.settings.get(name, 0))

    @property
    def database(self) -> Database:
        """BOINC's programs find the socket of `localhost` in this variable."""
        return Database(self.settings["db_name"], self.settings["db_user"], Path(os.environ["MYSQL_UNIX_PORT"]))

    def hashed(self, name: str) -> str:
        """`FANOUT/NAME`: where a file lies below download/ and upload/."""
        number = int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[1:8], 16)
        return f"{number % int(self.settings['uldl_dir_fanout']):x}/{name}"

    def download_path(self, name: str) -> Path:
        return Path(self.settings["download_dir"]) / self.hashed(name)

    def upload_path(self, name: str) -> Path:
        return Path(self.settings["upload_dir"]) / self.hashed(name)
