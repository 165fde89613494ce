"""Add and remove files of the project's download/ folder, by physical name.

Each file is whole or absent, and readable by the web server.

NAME        the file, in BOINC's fan-out
NAME.gz     the same compressed, where that helps; clients fetch this one
NAME.md5    `md5 size`, written last; only where create_work reads it (cache_md5_info)
"""

import gzip
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.project_folder import BoincProject, add_advice
from vcdl.files.atomic import atomic_write, final_name, is_leftover

_FILE_MODE = 0o644
"""The mode of files in download/, because the web server must read them."""
_FOLDER_MODE = 0o771
"""The mode that BOINC gives its own folders: other users may enter a folder, but not list it."""
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Content:
    """Physical name, size and checksum of a file in download/, derived from its content."""

    name: str
    """Physical name, derived from the content: jobs and clients share files of equal content."""
    size_bytes: int
    md5: str

    @classmethod
    def of(cls, path: Path) -> "Content":
        """Return name, size and checksum of a file, reading it once.

        Raises:
            GridError: The file cannot be read.
        """
        sha256, md5, size_bytes = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        with _advise_on_permissions(path), path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                sha256.update(block)
                md5.update(block)
                size_bytes += len(block)
        # Derive the name from the content: BOINC never replaces a published file, and clients never fetch a name twice.
        # 32 hexadecimal digits are 128 bits: enough against collisions, and short enough for BOINC's columns.
        return cls(f"vcdl_{sha256.hexdigest()[:32]}{path.suffix}", size_bytes, md5.hexdigest())


class DownloadFolder:
    """The project's download/ folder.

    Repeating a call changes nothing. All calls may raise GridError.
    """

    def __init__(self, project: BoincProject) -> None:
        self._project = project

    def stage(self, source: Path, content: Content, *, compress: bool = False) -> None:
        """Put a file in place, unless it is there already.

        Args:
            source: The file.
            content: Its name, size and checksum, as `Content.of` returned them.
            compress: Whether to write NAME.gz too, for workunits whose template has <gzip/>.
        """
        path = self._path(content.name)
        # Compare the size as well: every client would refuse a file that a full disk or a restored backup has
        # truncated.
        if not self._is_whole(path, content.size_bytes):
            with writing(path) as target:
                _link_or_copy(source, target)
        # BOINC's client asks for NAME.gz where the template has <gzip/>. Compress only the model, because shards and
        # weights do not shrink.
        packed = path.with_name(f"{content.name}.gz")
        if compress and not packed.exists():
            with writing(packed) as target:
                _compress(source, target)
        # Write the .md5 file last: it tells create_work that the file exists and is complete.
        self._write_md5(path, content.md5, content.size_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, replacing any other of its name. Call it only for names that clients may fetch again."""
        path = self._path(name)
        with writing(path) as target:
            target.write_bytes(content)
        self._write_md5(path, hashlib.md5(content, usedforsecurity=False).hexdigest(), len(content))

    def download_bytes(self, name: str) -> int:
        """Return the bytes that a client downloads for the file; 0 if it no longer exists."""
        path = self._project.download_path(name)
        # Look for the compressed file first: if it exists, clients fetch it.
        for each in (path.with_name(f"{name}.gz"), path):
            with _advise_on_permissions(each), suppress(FileNotFoundError):
                return each.stat().st_size
        return 0

    def remove(self, name: str) -> None:
        path = self._project.download_path(name)
        with _advise_on_permissions(path):  # keep the fan-out's folders: file_deleter treats a missing one as an error
            for ending in (".md5", ".gz", ""):
                path.with_name(f"{name}{ending}").unlink(missing_ok=True)

    def remove_all(self, is_unwanted: Callable[[str], bool]) -> None:
        """Search the whole folder; delete leftover temporary files, and each file whose name `is_unwanted` accepts.

        The compressed copy and the .md5 file are removed with their file.
        """
        top = self._project.download_dir
        with _advise_on_permissions(top):
            folders = (
                [top] if self._project.fanout == 0 else [entry.path for entry in os.scandir(top) if entry.is_dir()]
            )
            for folder in folders:
                for entry in os.scandir(folder):
                    if is_unwanted(_plain_name(entry.name)) or is_leftover(entry.name):
                        Path(entry.path).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        path = self._project.download_path(name)
        with _advise_on_permissions(path):
            try:
                path.parent.mkdir()
            except FileExistsError:
                return path
            # Set the mode by chmod, since the umask limits mkdir's, and the web server's user must be able to enter the
            # folder. Do so only for a new folder, because BOINC's own may belong to another user.
            path.parent.chmod(_FOLDER_MODE)
        return path

    def _is_whole(self, path: Path, size_bytes: int) -> bool:
        with _advise_on_permissions(path):
            try:
                return path.stat().st_size == size_bytes
            except FileNotFoundError:
                return False

    def _write_md5(self, path: Path, md5: str, size_bytes: int) -> None:
        """Write NAME.md5, after the file: BOINC ignores an older one."""
        if self._project.cache_md5_info:
            with writing(path.with_name(f"{path.name}.md5")) as target:
                target.write_text(f"{md5} {size_bytes}\n")


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` at the end of the block, readable by all.

    Raises:
        GridError: The file cannot be written.
    """
    with _advise_on_permissions(path), atomic_write(path) as temporary:
        yield temporary
        # Set the mode before the rename, so that the web server never finds a file that it cannot read.
        temporary.chmod(_FILE_MODE)


def _plain_name(name: str) -> str:
    """Return the name of the file to which a .gz or .md5 file belongs."""
    name = final_name(name)
    for ending in (".md5", ".gz"):
        name = name.removesuffix(ending)
    return name


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def _compress(source: Path, target: Path) -> None:
    # Store no name and no time in the header, so that two processes that stage the same model write the same bytes.
    with source.open("rb") as plain, target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        shutil.copyfileobj(plain, packed)


def _advise_on_permissions(path: Path) -> AbstractContextManager[None]:
    return add_advice(path, "free some space, or correct the permissions: it must belong to the project's user")
