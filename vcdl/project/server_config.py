"""What install and doctor read of a project's config.xml besides what the grid needs (BoincProject)."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.errors import GridError
from vcdl.project import files

_SCHEDULER = re.compile(r"""boinc_scheduler["']\s+href=["']([^"']+)["']|<scheduler>([^<]+)</scheduler>""")


@dataclass(frozen=True)
class ServerConfig:
    """A project's server."""

    key_dir: Path
    shmem_key: int
    """Of the shared memory between feeder and scheduler."""
    download_url: str
    upload_url: str
    scheduler_url: str
    """What the master page tells clients; empty when it tells nothing."""
    settings: dict[str, str]
    """The children of <config>, as text; a lone tag is "1", as BOINC takes it. Of one given twice the last."""
    daemons: tuple["Daemon", ...]

    @classmethod
    def at(cls, project: Path) -> Self:
        """Raises GridError when config.xml cannot be read."""
        path = project / "config.xml"
        try:
            root = ElementTree.fromstring(files.read(path) or b"")
        except ElementTree.ParseError as error:
            raise GridError(f"{path} is not well-formed XML: {error}; mend it there and run this again") from None
        settings = {each.tag: "1" if each.text is None else each.text.strip() for each in root.iterfind("config/*")}
        master_page = (files.read(project / "html" / "user" / "schedulers.txt") or b"").decode(errors="replace")
        found = _SCHEDULER.search(master_page)
        try:
            shmem_key = int(settings.get("shmem_key", "0") or "0", 0)
        except ValueError:
            raise GridError(f"{path}: shmem_key must be a number") from None
        return cls(
            key_dir=Path(settings.get("key_dir") or project / "keys"),
            shmem_key=shmem_key,
            download_url=settings.get("download_url", ""),
            upload_url=settings.get("upload_url", ""),
            scheduler_url=(found.group(1) or found.group(2)).strip() if found else "",
            settings=settings,
            daemons=tuple(Daemon.of(element) for element in root.iterfind("daemons/daemon")),
        )


@dataclass(frozen=True)
class Daemon:
    """An entry of <daemons>."""

    command: str
    host: str
    """Empty: the project's."""
    disabled: bool
    pid_file: str
    """Its name in pid_HOST/."""

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
