"""The runtimes that a project publishes.

Copies are kept in PROJECT/vcdl/runtimes/, so that a later install publishes them again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.runtime.archive import ArchiveManifest, RuntimeFile
from vcdl.boinc.runtime.platforms import PLATFORMS

_SUFFIX = ".tar"


def runtime_folder(project: Path) -> Path:
    return project / "vcdl" / "runtimes"


def runtime_path(project: Path, runtime: RuntimeFile) -> Path:
    """Return the path at which the project keeps a runtime: one per platform, and one for its GPUs."""
    manifest = runtime.manifest
    return runtime_folder(project) / f"{manifest.platform}{'_gpu' if manifest.gpu else ''}{_SUFFIX}"


def runtimes_to_publish(project: Path, given: Iterable[Path], without: Sequence[str]) -> tuple[RuntimeFile, ...]:
    """Return the runtimes to publish: those kept by the project, and given ones, which replace them.

    Args:
        project: The project's folder.
        given: Archives of runtimes; each replaces the kept runtime of its platform.
        without: Platforms whose kept runtime is not published any more; with _gpu, the one for GPUs.

    Raises:
        GridError: An archive is not a runtime.
    """
    known = {platform.name for platform in PLATFORMS}  # an earlier version of VCDL had others
    kept = [runtime for runtime in map(RuntimeFile.at, _list_runtimes(project)) if runtime.manifest.platform in known]
    # Let later entries win, so that a given runtime replaces the kept one of its platform.
    chosen = {runtime_path(project, runtime): runtime for runtime in (*kept, *map(RuntimeFile.at, given))}
    return tuple(runtime for path, runtime in sorted(chosen.items()) if path.stem not in without)


def unwanted_runtimes(project: Path, runtimes: Iterable[RuntimeFile]) -> list[Path]:
    """Return the paths of kept runtimes that are not among `runtimes`."""
    wanted_paths = {runtime_path(project, runtime) for runtime in runtimes}
    return [path for path in _list_runtimes(project) if path not in wanted_paths]


@dataclass(frozen=True)
class Size:
    """The size of a kept runtime: its download, and its space on a host's disk."""

    system: str
    """Name of the runtime's platform, with its GPU."""
    fetched_bytes: int
    disk_bytes: int
    """Bytes of the archive and of the unpacked runtime together."""


def sizes(project: Path) -> list[Size]:
    """Return the sizes of the kept runtimes.

    Raises:
        GridError: A kept runtime cannot be read.
    """
    found = []
    for path in _list_runtimes(project):
        manifest, size_bytes = ArchiveManifest.of(path), path.stat().st_size
        system = f"{manifest.platform}{', with a GPU' if manifest.gpu else ''}"
        found.append(Size(system, size_bytes, size_bytes + manifest.unpacked_bytes))
    return found


def most_bytes(project: Path) -> int:
    """Return the bytes that the largest kept runtime takes on a host, packed and unpacked together.

    Raises:
        GridError: A kept runtime cannot be read.
    """
    return max((size.disk_bytes for size in sizes(project)), default=0)


def _list_runtimes(project: Path) -> list[Path]:
    return sorted(runtime_folder(project).glob(f"*{_SUFFIX}"))
