"""Build the runtime of one platform: install Python and packages, prune, compile, check and pack them."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.runtime import archive, byte_code, content, interpreter, packages, pruning
from vcdl.boinc.runtime.archive import ArchiveManifest, RuntimeFile
from vcdl.boinc.runtime.platforms import PROGRAM, Platform, packages_folder
from vcdl.client.runtime import MANIFEST
from vcdl.errors import GridError
from vcdl.files.atomic import whole_file

_SHOWN_FAULTS = 8
"""Faults that are printed, so that the message stays readable."""


@dataclass(frozen=True)
class BuildOrder:
    """Which runtime to build: platform, backend, and where Python and the packages come from."""

    platform: Platform
    backend: str
    python_archive: Path
    gpu: bool = False
    lock: Path | None = None
    """The lock file of the packages; None: the one that comes with VCDL."""


def build_runtime(order: BuildOrder, output: Path) -> Iterator[str | RuntimeFile]:
    """Build a runtime's archive while the caller iterates; yield a line for each step, and the archive at the end.

    Args:
        order: The runtime to build.
        output: The archive to write; its folder needs space for the unpacked runtime too.

    Raises:
        VcdlError: A step failed.
    """
    # Build next to the output, whose disk has space for gigabytes; /tmp may be in memory.
    with tempfile.TemporaryDirectory(prefix="vcdl-runtime-", dir=output.parent) as place:
        scratch = Path(place)
        folder = scratch / "runtime"
        folder.mkdir()
        yield from _fill(order, folder, scratch)
        with whole_file(output) as temporary:
            manifest = ArchiveManifest.from_json((folder / MANIFEST).read_bytes())
            # `pack` writes the manifest itself, as the first member.
            (folder / MANIFEST).unlink()
            archive.pack(manifest, folder, scratch, temporary)
            temporary.chmod(0o644)
    yield RuntimeFile.at(output)


def _fill(order: BuildOrder, folder: Path, scratch: Path) -> Iterator[str]:
    platform = order.platform
    minor = interpreter.unpack_python(order.python_archive, platform, folder)
    pruning.prune_python(folder, minor)
    yield f"Python {minor} of {order.python_archive}"
    target = folder / packages_folder(minor)
    target.mkdir()
    lock = order.lock or packages.lock_of(order.backend, order.gpu)
    versions = packages.install(lock, platform, minor, target)
    yield f"{len(versions)} packages, hashes checked"
    # Prune before the checks, so that the trial start finds a module that was removed by mistake.
    pruning.prune_packages(target)
    if found := content.faults(folder, platform, minor, order.backend):
        more = f" and {len(found) - _SHOWN_FAULTS} more" if len(found) > _SHOWN_FAULTS else ""
        raise GridError(f"this runtime would not work: {'; '.join(found[:_SHOWN_FAULTS])}{more}")
    # Compile last, because pruning removes *.pyc, and sizes include the byte code.
    byte_code.compile_ahead(folder, folder / PROGRAM, platform, minor)
    started = "started once" if interpreter.runs_here(platform) else "not started, as it is for another system"
    yield f"links and paths checked, {started}; byte-code made"
    (folder / MANIFEST).write_bytes(_manifest(order, folder, minor, versions).to_json())


def _manifest(order: BuildOrder, folder: Path, minor: str, versions: dict[str, str]) -> ArchiveManifest:
    target = folder / packages_folder(minor)
    total = archive.size_below(folder)
    packages_bytes = archive.size_below(target)
    return ArchiveManifest(
        platform=order.platform.name,
        backend=order.backend,
        gpu=order.gpu,
        python=minor,
        packages=versions,
        folder=packages_folder(minor).as_posix(),
        processor_needs=order.platform.processor_needs,
        glibc=content.glibc_of(folder),
        python_bytes=total - packages_bytes,
        packages_bytes=packages_bytes,
    )
