"""The part of a project's config.xml that install and doctor read (the grid's part: BoincProject)."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.boinc.grid.project_folder import this_machine
from vcdl.boinc.project import files
from vcdl.errors import GridError

_SCHEDULER = re.compile(r"""boinc_scheduler["']\s+href=["']([^"']+)["']|<scheduler>([^<]+)</scheduler>""")


def scheduler_in(page: str) -> str:
    """Return the scheduler's address in a master page, or in its part schedulers.txt; empty if there is none."""
    found = _SCHEDULER.search(page)
    return (found.group(1) or found.group(2)).strip() if found else ""


@dataclass(frozen=True)
class ServerConfig:
    """The settings of a project's server that install and doctor read: config.xml, and the scheduler's address."""

    key_dir: Path
    shmem_key: int
    """Key of the shared memory between feeder and scheduler."""
    master_url: str
    """The project's address, to which clients attach."""
    download_url: str
    upload_url: str
    scheduler_url: str
    """The scheduler's address for clients in the master page; empty without one."""
    settings: dict[str, str]
    """Children of <config> as text.

    A lone tag is "1", as BOINC reads it. Of a repeated setting the last value is used.
    """
    daemons: tuple["Daemon", ...]

    @classmethod
    def at(cls, project: Path) -> Self:
        """Read config.xml.

        Raises:
            GridError: The file cannot be read, or is not XML.
        """
        path = project / "config.xml"
        try:
            root = ElementTree.fromstring(files.read(path) or b"")
        except ElementTree.ParseError as error:
            raise GridError(f"{path} is not well-formed XML: {error}; fix it there and run this again") from None
        # BOINC reads a lone `<tag/>` as true, and `<tag></tag>` as empty.
        settings = {each.tag: "1" if each.text is None else each.text.strip() for each in root.iterfind("config/*")}
        master_page = (files.read(project / "html" / "user" / "schedulers.txt") or b"").decode(errors="replace")
        try:
            shmem_key = int(settings.get("shmem_key", "0") or "0", 0)
        except ValueError:
            raise GridError(f"{path}: shmem_key must be a number") from None
        return cls(
            key_dir=Path(settings.get("key_dir") or project / "keys"),
            shmem_key=shmem_key,
            master_url=settings.get("master_url", ""),
            download_url=settings.get("download_url", ""),
            upload_url=settings.get("upload_url", ""),
            scheduler_url=scheduler_in(master_page),
            settings=settings,
            daemons=tuple(Daemon.of(element) for element in root.iterfind("daemons/daemon")),
        )

    @property
    def daemons_here(self) -> list["Daemon"]:
        """The daemons of this machine, including disabled ones."""
        project_host = self.settings.get("host", "")
        return [each for each in self.daemons if each.command and (each.host or project_host) == this_machine()]


@dataclass(frozen=True)
class Daemon:
    """A daemon of the project, an entry of <daemons>."""

    command: str
    host: str
    """The host that runs the daemon; empty: the project's."""
    disabled: bool
    pid_file: str
    """Name of the daemon's pid file in pid_HOST/."""

    @property
    def program(self) -> str:
        return (self.command.split() or [""])[0].rpartition("/")[2]

    @property
    def name(self) -> str:
        return self.pid_file.removesuffix(".pid")

    @classmethod
    def of(cls, element: ElementTree.Element) -> Self:
        command = (element.findtext("cmd") or "").strip()
        program = (command.split() or [""])[0].rpartition("/")[2]
        return cls(
            command=command,
            host=(element.findtext("host") or "").strip(),
            disabled=(element.findtext("disabled") or "0").strip() not in ("", "0"),
            pid_file=(element.findtext("pid_file") or f"{program}.pid").strip(),
        )
