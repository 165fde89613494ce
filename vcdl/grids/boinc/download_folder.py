"""The project's download/ folder: files by physical name, each there whole or not at all, readable by the web server.

NAME        the file, in BOINC's fan-out
NAME.gz     the same compressed, where it helps; clients fetch this one
NAME.md5    `md5 size`, written last; only where create_work reads it (cache_md5_info)
"""

import gzip
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import GridError
from vcdl.grids.boinc.project_folder import BoincProject

_FILE_MODE = 0o644
_FOLDER_MODE = 0o771
"""As BOINC makes them."""
_TEMPORARY = ".tmp"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Content:
    """A file by what is in it."""

    name: str
    """Physical name: files of the same content are one file, for all jobs of the project and for the clients."""
    size_bytes: int
    md5: str

    @classmethod
    def of(cls, path: Path) -> "Content":
        """Read a file. Raises GridError."""
        sha256, md5, size_bytes = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        with _explained(path), path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                sha256.update(block)
                md5.update(block)
                size_bytes += len(block)
        return cls(f"vcdl_{sha256.hexdigest()[:32]}{path.suffix}", size_bytes, md5.hexdigest())


class DownloadFolder:
    """Puts files there and takes them away; doing it twice is doing it once. All calls may raise GridError."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project

    def stage(self, source: Path, content: Content, *, compress: bool = False) -> None:
        """Put a file there, or leave it when it is there already."""
        path = self._path(content.name)
        if not self._is_whole(path, content.size_bytes):
            write_whole(path, lambda target: _link_or_copy(source, target))
        if compress and not path.with_name(f"{content.name}.gz").exists():
            write_whole(path.with_name(f"{content.name}.gz"), lambda target: _compress(source, target))
        self._write_md5(path, content.md5, content.size_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Put a small file of this content there, in the place of any other."""
        path = self._path(name)
        write_whole(path, lambda target: target.write_bytes(content))
        self._write_md5(path, hashlib.md5(content, usedforsecurity=False).hexdigest(), len(content))

    def download_bytes(self, name: str) -> int:
        """What a client fetches to have the file; 0 when it is gone."""
        path = self._project.download_path(name)
        for each in (path.with_name(f"{name}.gz"), path):
            try:
                return each.stat().st_size
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _explanation(each, error) from error
        return 0

    def remove(self, name: str) -> None:
        path = self._project.download_path(name)
        with _explained(path):  # the fan-out's folders stay: BOINC's file_deleter takes a missing one for an error
            for ending in (".md5", ".gz", ""):
                path.with_name(f"{name}{ending}").unlink(missing_ok=True)

    def remove_all(self, is_unwanted: Callable[[str], bool]) -> None:
        """Look through the whole folder and remove each file `is_unwanted`, with what lies beside it and was left half written."""
        top = self._project.download_dir
        with _explained(top):
            folders = (
                [top] if self._project.fanout == 0 else [entry.path for entry in os.scandir(top) if entry.is_dir()]
            )
            for folder in folders:
                for entry in os.scandir(folder):
                    if is_unwanted(_plain_name(entry.name)):
                        Path(entry.path).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        path = self._project.download_path(name)
        with _explained(path):
            try:
                path.parent.mkdir()
            except FileExistsError:
                return path
            path.parent.chmod(_FOLDER_MODE)
        return path

    def _is_whole(self, path: Path, size_bytes: int) -> bool:
        with _explained(path):
            try:
                return path.stat().st_size == size_bytes
            except FileNotFoundError:
                return False

    def _write_md5(self, path: Path, md5: str, size_bytes: int) -> None:
        """Not older than the file, or BOINC does not believe it."""
        if self._project.cache_md5_info:
            write_whole(path.with_name(f"{path.name}.md5"), lambda target: target.write_text(f"{md5} {size_bytes}\n"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """A file of the project that is there whole or not at all, readable by all. Raises GridError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    with _explained(path):
        try:
            temporary.unlink(missing_ok=True)
            write(temporary)
            temporary.chmod(_FILE_MODE)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _plain_name(name: str) -> str:
    """The name of the file that this one belongs to."""
    if name.startswith(".") and name.endswith(_TEMPORARY):
        name = name[1 : -len(_TEMPORARY)].rpartition(".")[0]
    for ending in (".md5", ".gz"):
        name = name.removesuffix(ending)
    return name


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def _compress(source: Path, target: Path) -> None:
    with source.open("rb") as plain, target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        shutil.copyfileobj(plain, packed)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explanation(path, error) from error


def _explanation(path: Path, error: OSError) -> GridError:
    return GridError(
        f"{path}: {error.strerror or error}; free some space, or mend the rights: it must belong to the project's user"
    )
