"""Build the app versions that train in a container: BOINC's docker_wrapper with a base image.

They serve Linux, Windows and macOS. The wrapper runs Podman or Docker of the volunteer's machine, on Windows in the
virtual machine that BOINC installs. In the container the launcher, the client and the runtime of Linux run as on Linux
itself (wrappers/docker).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.boinc.runtime.base import platform_of_base
from vcdl.boinc.runtime.platforms import Platform, platform_named
from vcdl.boinc.runtime.published import runtime_folder
from vcdl.errors import GridError
from vcdl.files.shipped import shipped_folder

BASE = "vcdl_base.tar.gz"
"""Name of the base in a slot, as in wrappers/docker/Dockerfile."""
_INSIDE = {
    "x86_64-pc-linux-gnu": "linux-x86_64",
    "aarch64-unknown-linux-gnu": "linux-aarch64",
    "windows_x86_64": "linux-x86_64",
    "x86_64-apple-darwin": "linux-x86_64",
    "arm64-apple-darwin": "linux-aarch64",
}
"""BOINC's platforms that run containers → platform of the runtime in the container."""
_HEADERS = (
    (rb"\x7fELF.{14}\x3e\0", "x86_64-pc-linux-gnu"),
    (rb"\x7fELF.{14}\xb7\0", "aarch64-unknown-linux-gnu"),
    (rb"MZ.*PE\0\0\x64\x86", "windows_x86_64"),
    (rb"\xcf\xfa\xed\xfe\x07\0\0\x01", "x86_64-apple-darwin"),
    (rb"\xcf\xfa\xed\xfe\x0c\0\0\x01", "arm64-apple-darwin"),
)
"""The first bytes of programs (ELF, PE, Mach-O) with the processor's number, each with BOINC's platform."""
_HEADER_BYTES = 4096
"""Bytes that are searched: enough for the DOS program in front of a Windows program's own header."""
_WRAPPER, _BASE = "docker_wrapper_", "base_"
CONTAINER_PLATFORMS = tuple(_INSIDE)


@dataclass(frozen=True)
class Container:
    """What machines of one platform need to run a Linux runtime in a container: docker_wrapper, and a base image."""

    boinc_platform: str
    wrapper: bytes
    base: bytes

    @property
    def inside(self) -> Platform:
        """The platform of the runtime in the container."""
        return platform_named(_INSIDE[self.boinc_platform])

    def description_files(self, project_url: str) -> dict[str, bytes]:
        """Return the files that describe the image and the container, by the names that docker_wrapper gives them."""
        folder = shipped_folder("wrappers") / "docker"
        dockerfile, settings = (folder / "Dockerfile").read_bytes(), (folder / "job.toml").read_text()
        # Name the image by its content: a host keeps it between tasks, and builds it again only if base or Dockerfile
        # changed.
        image = f"vcdl-{hashlib.sha256(self.base + dockerfile).hexdigest()[:12]}"
        filled = settings.replace("@PROJECT@", project_folder(project_url)).replace("@IMAGE@", image)
        return {"Dockerfile": dockerfile, "job.toml": filled.encode(), BASE: self.base}


def project_folder(url: str) -> str:
    """Return the name of a project's folder below `projects/` of a BOINC client, as the client makes it of the URL."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", url.partition("://")[2].rstrip("/"))


def platform_of_wrapper(path: Path) -> str:
    """Return BOINC's platform of a docker_wrapper program.

    Raises:
        GridError: The file is not a docker_wrapper.
    """
    # Look at the header, not at the name, because releases of BOINC name the program differently.
    start = (files.read(path) or b"")[:_HEADER_BYTES]
    for pattern, platform in _HEADERS:
        if re.match(pattern, start, re.DOTALL):
            return platform
    raise GridError(
        f"{path} is neither a base made by vcdl client base nor BOINC's docker_wrapper "
        f"(https://github.com/BOINC/boinc/wiki/Docker-apps) for one of {', '.join(_INSIDE)}"
    )


def collect_files(project: Path, given: Iterable[Path], without: Sequence[str]) -> dict[Path, bytes]:
    """Return the contents of wrappers and bases to use, keyed by their path in the project.

    Given files replace those of an earlier install.

    Args:
        project: The project's folder.
        given: Files of either kind, distinguished by their content.
        without: BOINC's platforms that get no container any more.

    Raises:
        GridError: A file is neither a wrapper nor a base.
    """
    if unknown := [name for name in without if name not in _INSIDE]:
        raise GridError(f"there are no containers for {', '.join(unknown)}: expected some of {', '.join(_INSIDE)}")
    folder = runtime_folder(project)
    # List kept files first, so that a given one replaces that of an earlier install.
    chosen = {path: path for path in sorted([*folder.glob(f"{_WRAPPER}*"), *folder.glob(f"{_BASE}*")])}
    for path in given:
        is_packed = (files.read(path) or b"").startswith(b"\x1f\x8b")
        name = f"{_BASE}{platform_of_base(path).name}" if is_packed else f"{_WRAPPER}{platform_of_wrapper(path)}"
        chosen[folder / name] = path
    wanted = {kept: path for kept, path in chosen.items() if kept.name.removeprefix(_WRAPPER) not in without}
    return {kept: files.read(path) or b"" for kept, path in wanted.items()}


def containers(kept: Mapping[Path, bytes], runtimes: Iterable[Platform]) -> tuple[Container, ...]:
    """Combine each wrapper with the base and the runtime of its platform, and return the containers.

    Raises:
        GridError: A base or a runtime is missing.
    """
    by_name = {path.name: content for path, content in kept.items()}
    has_runtime = {platform.name for platform in runtimes}
    found = []
    for name, wrapper in sorted(by_name.items()):
        if name.startswith(_WRAPPER):
            platform = name.removeprefix(_WRAPPER)
            inside = _INSIDE[platform]
            if f"{_BASE}{inside}" not in by_name:
                raise GridError(f"a container for {platform} needs a base: vcdl client base --platform {inside}")
            if inside not in has_runtime:
                raise GridError(f"a container for {platform} needs a runtime: give one of {inside} with --runtime")
            found.append(Container(platform, wrapper, by_name[f"{_BASE}{inside}"]))
    return tuple(found)
