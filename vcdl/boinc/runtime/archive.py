"""Read and write the archive of a runtime, with equal bytes for equal files.

runtime.json       the description: platform, backend, versions, sizes, requirements
python.tar.gz      Python with its own modules: any system unpacks it with tar and gzip
packages.tar.xz    the packages: unpacked by that Python, so that no system needs xz

The archive itself is a plain tar.
"""

import gzip
import io
import json
import lzma
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Self

import msgspec

from vcdl.boinc.runtime.platforms import Platform, platform_named
from vcdl.client.runtime import MANIFEST, PACKAGES
from vcdl.errors import GridError, printable
from vcdl.files.atomic import file_sha256

PYTHON = "python.tar.gz"
_FORMAT = 1
"""Format number of an archive's manifest."""
EARLIEST_S = 946684800
"""2000-01-01, the time of all files in the archive, so that equal content gives equal bytes."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class ArchiveManifest:
    """The description of a runtime: its platform, versions and sizes, stored in its archive as runtime.json."""

    platform: str
    backend: str
    gpu: bool
    python: str
    packages: dict[str, str]
    """Versions of the packages by name."""
    folder: str
    """The folder of packages in the unpacked runtime."""
    processor_needs: tuple[str, ...]
    glibc: str
    """The oldest GNU C library with which everything in the runtime loads; empty if it needs none."""
    python_bytes: Annotated[int, msgspec.Meta(ge=0)]
    packages_bytes: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes of the unpacked packages."""
    format: int = _FORMAT

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=2, sort_keys=True).encode() + b"\n"

    @staticmethod
    def from_json(content: bytes) -> "ArchiveManifest":
        """Decode a manifest.

        Raises:
            ValueError: It is damaged.
        """
        manifest = msgspec.json.decode(content, type=ArchiveManifest)
        if manifest.format != _FORMAT:
            raise ValueError(f"format {manifest.format}")
        return manifest

    @classmethod
    def of(cls, path: Path) -> "ArchiveManifest":
        """Return the manifest in an archive.

        Raises:
            GridError: The file cannot be read or is not a runtime.
        """
        try:
            with tarfile.open(path, "r:") as tar:
                names = tar.getnames()
                content = tar.extractfile(MANIFEST)
                if names != [MANIFEST, PYTHON, PACKAGES] or content is None:
                    raise ValueError(f"it holds {', '.join(names)}")
                return cls.from_json(content.read())
        except OSError as error:
            raise GridError(f"{path} cannot be read: {error.strerror}") from None
        except (tarfile.TarError, ValueError, KeyError) as error:
            said = printable(str(error))[:200]
            raise GridError(f"{path} is no runtime ({said}): make one with vcdl client runtime") from None

    @property
    def unpacked_bytes(self) -> int:
        return self.python_bytes + self.packages_bytes


@dataclass(frozen=True)
class RuntimeFile:
    """A runtime's archive that `vcdl client runtime` wrote, with its description and digest."""

    path: Path
    manifest: ArchiveManifest
    sha256: str
    size: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """Read the archive's manifest, and compute its digest.

        Raises:
            GridError: It is not a runtime's archive.
        """
        manifest = ArchiveManifest.of(path)
        return cls(path, manifest, file_sha256(path), path.stat().st_size)

    @property
    def platform(self) -> Platform:
        return platform_named(self.manifest.platform)

    @property
    def name(self) -> str:
        """Name of the archive among the files of an app version.

        It contains the digest, so that hosts fetch equal archives once.
        """
        return f"vcdl_runtime_{self.sha256[:12]}.tar"


def files_below(folder: Path) -> Iterator[Path]:
    """Return all files and links below a folder, sorted."""
    return iter(sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file()))


def size_below(folder: Path) -> int:
    """Return the bytes that all files below a folder take, in blocks of a file system."""
    return sum(-(-path.lstat().st_size // 4096) * 4096 for path in files_below(folder))


def pack(manifest: ArchiveManifest, folder: Path, scratch: Path, target: Path, level: int = 6) -> None:
    """Write the archive of an unpacked runtime.

    Args:
        manifest: The runtime's description.
        folder: The unpacked runtime.
        scratch: A folder for the two inner archives.
        target: The archive to write.
        level: Compression level of xz, 0 to 9.
    """
    packages = folder / manifest.folder
    python = scratch / PYTHON
    with (
        python.open("wb") as file,
        # Store no name and no time in the header: the archive's name is a hash of its bytes, and hosts fetch it again
        # when they differ.
        gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, manifest.to_json())
        for path in files_below(folder):
            if not path.is_relative_to(packages):
                _add_file(tar, path, folder)
    inner = scratch / PACKAGES
    with (
        lzma.open(inner, "wb", preset=level, check=lzma.CHECK_CRC64) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in files_below(packages):
            _add_file(tar, path, packages)
    # Do not compress again: both members are compressed, and a plain tar lets the client read one without the other.
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, MANIFEST, manifest.to_json())
        _add_file(tar, python, scratch)
        _add_file(tar, inner, scratch)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = _entry(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _add_file(tar: tarfile.TarFile, path: Path, top: Path) -> None:
    info = _entry(path.relative_to(top).as_posix())
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, PurePosixPath(path.readlink()).as_posix()
        tar.addfile(info)
        return
    found = path.stat()
    info.size = found.st_size
    info.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    with path.open("rb", buffering=_BLOCK) as file:
        tar.addfile(info, file)


def _entry(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = EARLIEST_S, 0o644
    return info
