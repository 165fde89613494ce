"""Store uploaded data in chunks named by their SHA-256.

No chunk is sent twice, and a broken upload continues where it stopped.
"""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from vcdl.errors import DataError, RunFolderError, folder_errors
from vcdl.files.atomic import atomic_write

CHUNK_BYTES = 8 << 20
"""Bytes of a chunk."""
_NAME = re.compile(r"[0-9a-f]{64}")
_KEPT_S = 3 * 86400.0
"""Seconds for which a chunk without a job is kept: long enough to finish a broken upload after a weekend."""


class ChunkStore:
    """The chunks of a service, in a folder for each submitter.

    If there is no space left, the submitter with the most bytes loses chunks. So no submitter can exclude others, or
    find out what they have sent.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = Lock()

    def missing(self, of: str, names: Sequence[str]) -> list[str]:
        """Return the chunks that a submitter has not sent.

        Raises:
            DataError: A name is invalid.
        """
        return [name for name in dict.fromkeys(names) if not self._path(of, name).is_file()]

    def put(self, of: str, name: str, content: bytes) -> None:
        """Store a submitter's chunk.

        Raises:
            DataError: The content does not match the name.
            RunFolderError: The chunk cannot be written, or there is no space left.
        """
        path = self._path(of, name)
        if hashlib.sha256(content).hexdigest() != name:
            raise DataError(f"the chunk {name[:12]}… was damaged in transit: send it again")
        # Touch it, so that a chunk that is sent again is not the oldest when room is made.
        if path.is_file():
            path.touch()
            return
        # The lock covers counting and writing: two submitters could otherwise both find the last free room.
        with folder_errors(self._folder), self._lock:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(path.parent, len(content))
            with atomic_write(path, private=True) as temporary:
                temporary.write_bytes(content)

    def read(self, of: str, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the content of a submitter's chunks, in order.

        Raises:
            DataError: A chunk is missing.
        """
        for name in names:
            try:
                yield self._path(of, name).read_bytes()
            except FileNotFoundError:
                raise DataError(f"the chunk {name[:12]}… is not here: send it, then submit again") from None

    def _path(self, of: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise DataError(
                f"{name[:70]!r} is not the name of a chunk: expected the 64 hexadecimal digits of its SHA-256"
            )
        # Name the folder by a hash, because the name of a caller may contain anything.
        return self._folder / hashlib.sha256(of.encode()).hexdigest()[:16] / name

    def _make_room(self, mine: Path, size_bytes: int) -> None:
        """Remove expired chunks, then those of the submitter with the most.

        Raises:
            RunFolderError: The submitter with the most is `mine`.
        """
        files = filter(Path.is_file, self._folder.rglob("*"))
        chunks = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in files)
        held, old_s = Counter({mine: size_bytes}), time.time() - _KEPT_S
        for _, size, path in chunks:
            held[path.parent] += size
        while held.total() > self._most_bytes:
            largest = max(held, key=held.__getitem__)
            # Remove expired chunks of any submitter first; then the submitter with the most bytes loses chunks, even if
            # another one needs the space.
            old = next((chunk for chunk in chunks if chunk[0] < old_s), None)
            if old is None and largest == mine:
                raise RunFolderError("the service has no space for more data: ask the operator for more")
            chunk = old or next(chunk for chunk in chunks if chunk[2].parent == largest)
            chunk[2].unlink()
            held[chunk[2].parent] -= chunk[1]
            chunks.remove(chunk)
