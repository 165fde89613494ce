"""The BOINC project that the doctor checks."""

from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.errors import for_shell


@dataclass(frozen=True)
class Installation:
    """A BOINC project, as its config.xml describes it."""

    project: BoincProject
    config: ServerConfig
    database: BoincDatabase
    environment: dict[str, str]
    """The variables of vcdl/environment."""

    @property
    def path(self) -> Path:
        return self.project.path

    @property
    def install_command(self) -> str:
        return f"vcdl project install --project-dir {for_shell(self.path)}"

    def display_path(self, path: Path) -> str:
        return self.project.display_path(path)
