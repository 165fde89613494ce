"""Data on their way to the service: chunks named by their SHA-256, so that none is sent twice and a broken upload goes
on where it was.
"""

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vcdl.errors import DataError, RunFolderError, folder_errors
from vcdl.files.atomic import atomic_write

_NAME = re.compile(r"[0-9a-f]{64}")
_KEPT_S = 3 * 86400.0
"""The life of a chunk of which no job was made."""


class ChunkStore:
    """The chunks of a service."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def missing(self, names: Sequence[str]) -> list[str]:
        """The chunks that are not there. Raises DataError for a name that is none."""
        return [name for name in dict.fromkeys(names) if not self._path(name).is_file()]

    def put(self, name: str, content: bytes) -> None:
        """Keep a chunk. Raises DataError for another content than its name says, or without room; RunFolderError."""
        path = self._path(name)
        if hashlib.sha256(content).hexdigest() != name:
            raise DataError(f"the chunk {name[:12]}… was damaged on its way: send it again")
        if path.is_file():
            path.touch()
            return
        with folder_errors(self._folder):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._size_bytes() + len(content) > self._most_bytes:
                self._sweep()
                if self._size_bytes() + len(content) > self._most_bytes:
                    raise RunFolderError("the service has no room for more data: the operator can give it more")
            with atomic_write(path, private=True) as temporary:
                temporary.write_bytes(content)

    def read(self, names: Sequence[str]) -> Iterator[bytes]:
        """The content of chunks, one after the other. Raises DataError when one is not there."""
        for name in names:
            try:
                yield self._path(name).read_bytes()
            except FileNotFoundError:
                raise DataError(f"the chunk {name[:12]}… is not here: send it, then submit again") from None

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise DataError(f"{name[:70]!r} names no chunk: 64 hexadecimal digits of SHA-256 do")
        return self._folder / name

    def _size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def _sweep(self) -> None:
        """Remove old chunks."""
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _KEPT_S:
                    path.unlink()
