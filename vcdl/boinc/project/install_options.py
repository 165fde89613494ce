"""The operator's choices for an install.

It is a module of its own with few imports, because `vcdl project --help` imports it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

SERVICE_PORT = 8630
"""The port of a project's service, unless the operator says otherwise."""


def service_path(url: str) -> str:
    """Return the path of a project's service on the web server that has the project at `url`."""
    project = urlsplit(url).path.rstrip("/")
    return f"{project}_vcdl" if project else "/vcdl"


@dataclass(frozen=True)
class InstallOptions:
    """The operator's choices; None keeps the choice of an earlier install."""

    python: Path
    store_url: str | None = None
    """Store of jobs whose job file names none; empty: remove it."""
    store_password: str = field(default="", repr=False)
    """Password of `store_url`, if the URL has none."""
    threads: int | None = None
    """Cores of a CPU task; 1 at the first install."""
    runtimes: tuple[Path, ...] = ()
    """Runtimes for volunteers, made by vcdl client runtime; those of other platforms stay."""
    without_runtimes: tuple[str, ...] = ()
    """Names of platforms whose runtime is not published any more; with _gpu the one for GPUs."""
    containers: tuple[Path, ...] = ()
    """BOINC's docker_wrapper for some platforms, and bases made by vcdl client base; those given earlier stay."""
    without_containers: tuple[str, ...] = ()
    """BOINC's platforms that get no container any more."""
    service_port: int | None = None
    """Port of the project's service; 0: remove the service."""
    force: bool = False
    """Whether to install although open tasks of other apps would lose their uploads."""
