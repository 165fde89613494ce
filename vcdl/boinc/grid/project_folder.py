"""The folder of a BOINC project: the settings of its config.xml, and the paths of its files."""

import hashlib
import os
import pwd
import socket
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vcdl.errors import GridError
from vcdl.files.below import Below
from vcdl.run.finding import SUBMITTED
from vcdl.run.folder import RunFolder

APP = "vcdl"
"""Name of our app in every project."""
GPU_CLASS = "vcdl_cuda"
"""The plan class of app versions for a GPU."""


@dataclass(frozen=True)
class BoincProject:
    """A BOINC project: the settings of its config.xml that VCDL needs, and the paths of its files.

    config.xml is read once, so that only the next process sees an edit.
    """

    path: Path
    master_url: str
    host: str
    """The machine whose daemons `bin/start` starts."""
    db_name: str
    db_host: str
    """Host name; `localhost` means a socket, as in BOINC's own programs."""
    db_port: int
    db_socket: str
    """Path of the socket, from $MYSQL_UNIX_PORT as BOINC has no such setting; empty: the client library's default."""
    db_user: str
    db_password: str = field(repr=False)
    download_dir: Path
    download_url: str
    upload_dir: Path
    upload_public: Path
    """The key by which the upload handler recognises uploads that the project requested."""
    log_dir: Path
    fanout: int
    """Number of folders below download/ and upload/; 0 for none."""
    cache_md5_info: bool
    """Whether create_work trusts the .md5 files; otherwise it reads every input of every workunit."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """Read the project in a folder.

        Raises:
            GridError: The folder contains no BOINC project, or its config.xml cannot be used.
        """
        path = path.resolve()
        config = _read_config(path)
        host = config.get("host", "")
        db_host, _, port = config.get("db_host", "").partition(":")
        try:
            return cls(
                path=path,
                master_url=_require(config, "master_url", path),
                host=host,
                db_name=_require(config, "db_name", path),
                # Reach this machine through the socket under any name, as BOINC does.
                db_host="localhost" if db_host in ("", socket.gethostname()) else db_host,
                db_port=int(port or 3306),
                db_socket=os.environ.get("MYSQL_UNIX_PORT", ""),
                db_user=config.get("db_user", ""),
                db_password=config.get("db_passwd", ""),
                download_dir=path / config.get("download_dir", "download"),
                download_url=config.get("download_url") or f"{config.get('master_url', '').rstrip('/')}/download",
                upload_dir=path / config.get("upload_dir", "upload"),
                upload_public=Path(config.get("key_dir") or path / "keys") / "upload_public",
                log_dir=path / f"log_{host}",
                fanout=_fanout(config.get("uldl_dir_fanout") or "0"),
                cache_md5_info=config.get("cache_md5_info", "0") != "0",  # BOINC reads a lone tag as true
            )
        except ValueError as error:
            raise GridError(f"{path / 'config.xml'}: a number was expected: {error}") from error

    runs_folder = Below(SUBMITTED)
    """The folder with a subfolder for each job ever submitted."""

    @property
    def has_runs(self) -> bool:
        """Whether any job is visible.

        If not, none was submitted, or the disk of the jobs is not mounted.

        Raises:
            GridError: The folder cannot be read.
        """
        with add_advice(self.runs_folder, RESULTS_WAIT):
            try:
                # One entry is enough: an unmounted disk shows an empty folder.
                return any(self.runs_folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                return False

    @property
    def upload_mark(self) -> Path:
        """A file that install puts into upload/; a folder mounted over upload/ lacks it."""
        return self.upload_dir / "vcdl_mark"

    def check_uploads(self) -> None:
        """Check that upload/ is the folder that install marked, before any missing upload is counted as lost.

        Raises:
            GridError: upload/ is missing, or is another folder.
        """
        if not self.upload_dir.is_dir():
            raise GridError(f"there is no folder {self.upload_dir}: mount or make it; results wait until then")
        # An unmounted or covered folder exists and is empty. Without this check every upload would count as lost, and
        # each subtask as failed.
        if not self.upload_mark.is_file():
            raise GridError(
                f"{self.upload_dir} is not the folder that install marked, or lost its vcdl_mark: is another one "
                f"mounted over it? If it is the right one: `touch {self.upload_mark}`; results wait until then"
            )

    def run_folder(self, job: str) -> RunFolder:
        return RunFolder(self.runs_folder / job)

    manifests = Below("vcdl", "staged")
    """The folder with the manifests of open jobs."""
    stop_daemons = Below("stop_daemons")
    """The file whose presence ends the daemons."""
    templates = Below("templates")
    bin = Below("bin")

    def check_user(self) -> None:
        """Check that files of this process would belong to the project's user.

        Raises:
            GridError: This process runs as another user.
        """
        # As root the command would work, but leave files that the daemons and the web server cannot replace.
        owner = self.path.stat().st_uid
        if owner != os.geteuid():
            name = user_named(owner)
            raise GridError(
                f"{self.path} belongs to {name}: run this as {name}, for example with `sudo -u {name} vcdl …`"
            )

    def display_path(self, path: Path) -> str:
        """Return a path relative to the project's folder if it is below; otherwise unchanged."""
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else str(path)

    def download_path(self, name: str) -> Path:
        """Return the path of a file that clients download, by its physical name."""
        return self._fan_out_path(self.download_dir, name)

    def url_of_download(self, name: str) -> str:
        """Return the address from which clients download a physical file."""
        return f"{self.download_url.rstrip('/')}/{self.download_path(name).relative_to(self.download_dir)}"

    checker_socket = Below("vcdl", "checker.sock")
    """The socket of the resident checker (vcdl.boinc.daemons.checker)."""

    def upload_path(self, name: str) -> Path:
        """Return the path at which the upload handler stores a file, by its physical name.

        Raises:
            GridError: The name leads out of the folder.
        """
        return self._fan_out_path(self.upload_dir, name)

    def _fan_out_path(self, top: Path, name: str) -> Path:
        # Refuse names that lead out of the folder: names of uploads come from a result's description, which a client
        # can influence.
        if not name or name in (".", "..") or "/" in name or "\0" in name or len(name.encode()) > 255:
            raise GridError(f"{name[:100]!r} is not the name of a file")
        if self.fanout == 0:
            return top / name
        # BOINC's dir_hier_path: digits 2 to 8 of the name's MD5 sum, modulo the fan-out, in hexadecimal.
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        return top / f"{int(digest[1:8], 16) % self.fanout:x}" / name


_READ = {
    *("master_url", "host", "db_name", "db_host", "db_user", "db_passwd", "download_dir", "download_url"),
    *("upload_dir", "uldl_dir_fanout", "key_dir", "cache_md5_info"),
}
"""Settings of config.xml that are read here, so that two different values of one are an error."""


def _read_config(path: Path) -> dict[str, str]:
    file = path / "config.xml"
    try:
        config = ElementTree.fromstring(file.read_bytes()).find("config")
    except FileNotFoundError:
        raise GridError(
            f"{path} is no BOINC project (it has no config.xml): give the folder that make_project made"
        ) from None
    except (OSError, ElementTree.ParseError) as error:
        raise GridError(f"{file} cannot be read: {error}; fix it, or run as the project's user") from error
    if config is None:
        raise GridError(f"{file} has no <config>: it is not the config.xml of a BOINC project")
    settings = {element.tag: (element.text or "").strip() for element in config}
    # BOINC's programs differ in which value of a repeated setting they take, so accept only equal ones.
    differ = {element.tag for element in config if settings[element.tag] != (element.text or "").strip()}
    if twice := sorted(differ & _READ):
        raise GridError(
            f"{file} has {', '.join(twice)} twice, with different values: BOINC's programs do not agree which counts"
        )
    return settings


def _fanout(text: str) -> int:
    if (fanout := int(text)) < 0:
        raise ValueError(f"uldl_dir_fanout is {fanout}")
    return fanout


Identity = tuple[int, int, int]
"""Inode, modification time in nanoseconds, and size of a file."""
RUN_AS_USER = "run as the project's user"
RESULTS_WAIT = "repair the disk, the permissions or the mount: results wait until then"
"""Advice where this machine cannot read a file; the read is retried."""


@contextmanager
def add_advice(path: Path, advice: str) -> Iterator[None]:
    """Convert an OSError of the block to a GridError with the path and this advice."""
    try:
        yield
    except OSError as error:
        raise GridError(f"{path}: {error.strerror or error}; {advice}") from error


def identity_of(path: Path) -> Identity:
    """Return inode, time and size of a file, which change when it is replaced under the same name.

    Raises:
        OSError: The file does not exist or cannot be read.
    """
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def user_named(uid: int) -> str:
    """Return the name of a user, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def this_machine() -> str:
    """Return the short name by which BOINC knows this machine."""
    return socket.gethostname().split(".")[0]


def _require(config: dict[str, str], key: str, path: Path) -> str:
    value = config.get(key, "")
    if not value:
        raise GridError(f"{path / 'config.xml'} has no <{key}>: it is not the config.xml of a BOINC project")
    return value
