"""Store uploaded data in chunks named by their SHA-256.

A client first asks which chunks are missing. So it sends no chunk twice, and a broken upload resumes where it stopped.
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
    """Stores the uploaded chunks of a service, in a folder for each submitter.

    All chunks together use at most `most_bytes`. If a new one does not fit, expired chunks are removed first, then
    chunks of the submitter with the most bytes: so no submitter can use up the space of the others. Since every
    submitter has a folder of their own, `missing` does not reveal what others have sent.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = Lock()

    def missing(self, of: str, names: Sequence[str]) -> list[str]:
        """Return those of the named chunks that a submitter has not sent or that were removed, each once, in order.

        Args:
            of: Name of the submitter.
            names: SHA-256 of the chunks, in hexadecimal.

        Raises:
            DataError: A name is invalid.
        """
        return [name for name in dict.fromkeys(names) if not self._path(of, name).is_file()]

    def put(self, of: str, name: str, content: bytes) -> None:
        """Store a submitter's chunk, removing others if there is no space. A chunk that is there only becomes newer.

        Raises:
            DataError: The name is invalid, or is not the SHA-256 of the content.
            RunFolderError: The chunk cannot be written, or the submitter has the most bytes and no space is left.
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
        """Yield the content of each of a submitter's chunks, in the order of `names`.

        Raises:
            DataError: A chunk is missing, because it was never sent or was removed. The ones before it were yielded.
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
        """Remove chunks until a new one fits: expired ones first, then those of the submitter with the most bytes.

        Args:
            mine: Folder of the submitter who sends the new chunk.
            size_bytes: Bytes of the new chunk.

        Raises:
            RunFolderError: No chunk has expired, and the submitter with the most bytes is `mine`.
        """
        files = filter(Path.is_file, self._folder.rglob("*"))
        chunks = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in files)
        held, old_s = Counter({mine: size_bytes}), time.time() - _KEPT_S
        for _, size, path in chunks:
            held[path.parent] += size
        while held.total() > self._most_bytes:
            largest = max(held, key=held.__getitem__)
            # Remove expired chunks of any submitter first: their uploads have been idle for days.
            old = next((chunk for chunk in chunks if chunk[0] < old_s), None)
            if old is None and largest == mine:
                raise RunFolderError("the service has no space for more data: ask the operator for more")
            chunk = old or next(chunk for chunk in chunks if chunk[2].parent == largest)
            chunk[2].unlink()
            held[chunk[2].parent] -= chunk[1]
            chunks.remove(chunk)
