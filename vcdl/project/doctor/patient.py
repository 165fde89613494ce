"""What the checks look at."""

from dataclasses import dataclass
from pathlib import Path

from vcdl.grids.boinc.database import BoincDatabase
from vcdl.grids.boinc.project_folder import BoincProject
from vcdl.project.server_config import ServerConfig


@dataclass(frozen=True)
class Patient:
    """A project, as its config.xml describes it."""

    project: BoincProject
    config: ServerConfig
    database: BoincDatabase
    environment: dict[str, str]
    """Of vcdl/environment."""

    @property
    def path(self) -> Path:
        return self.project.path

    @property
    def install_command(self) -> str:
        return f"vcdl project install --project-dir {self.path}"

    def shown(self, path: Path) -> str:
        """A path below the project's folder, without it."""
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else str(path)
